package manifests

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A copy that was damaged, or that another user could have written, is not used.
func TestBadCopiesAreNotUsed(t *testing.T) {
	for _, damage := range []func(t *testing.T, path string){
		func(t *testing.T, path string) { must(t, os.Truncate(path, 40)) },
		func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			must(t, err, os.WriteFile(path, bytes.Replace(data, []byte(`"q"`), []byte(`"z"`), 1), 0o600))
		},
		func(t *testing.T, path string) { must(t, os.Chmod(path, 0o666)) },
	} {
		a := newAgent(t)
		a.restart(func() {
			damage(t, filepath.Join(a.state, copiesDir, "p.yaml"))
			must(t, os.Truncate(filepath.Join(a.dir, "p.yaml"), 0))
			a.age("p.yaml")
		})
		a.wantNames(ns, pod)
		a.wantProblems("p.yaml: cannot be read: the file is empty; its objects are not known")
		a.stop()
		if !strings.Contains(a.log.String(), "the last good version of a manifest cannot be used") {
			t.Errorf("log:\n%s", a.log.String())
		}
	}
}

// Names need not be UTF-8.
func TestCopiesOfNamesThatAreNotUTF8(t *testing.T) {
	a := &agent{harness: &harness{t: t, dir: filepath.Join(t.TempDir(), "d\xff")}, state: filepath.Join(t.TempDir(), "state")}
	must(t, os.Mkdir(a.dir, 0o700))
	const name = "p\xff\u00e9.yaml"
	writeFile(t, a.dir, name, podYAML("x", "a"))
	a.restart()
	a.restart(func() { must(t, os.Truncate(filepath.Join(a.dir, name), 0)); a.age(name) })
	a.wantNames(ns, pod)
}

// A directory that cannot be synced is a problem until it is, without another change of the files.
func TestDirectoryThatCannotBeSynced(t *testing.T) {
	state := t.TempDir()
	c := newCopies(state, "/manifests", false, slog.New(slog.DiscardHandler))
	f := &file{name: "a.yaml", content: parse("a.yaml", []byte(podYAML("x", "a")), false)}
	must(t, os.Mkdir(c.dir, 0o300))
	c.keep(map[string]*file{"a.yaml": f}, []string{"a.yaml"}, true, cluster{})
	withoutOverride(t, c.write)
	if problems := c.problems(); len(problems) != 1 || !strings.Contains(problems[0].Reason, "permission denied") {
		t.Errorf("problems %v", problems)
	}
	withoutOverride(t, c.write)
	if len(c.problems()) != 1 {
		t.Error("the problem is gone, though the directory was not synced")
	}
	must(t, os.Chmod(c.dir, 0o700))
	c.write()
	if problems := c.problems(); len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
}

// A state directory that is full or read-only is named, nothing else changes, and the copies follow once it can be written.
func TestStateDirectoryThatCannotBeWritten(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a file system: needs root")
	}
	for _, c := range []struct {
		name, want string
	}{
		{"full", "no space left on device"},
		{"read-only", "read-only file system"},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := t.TempDir()
			must(t, unix.Mount("none", state, "tmpfs", 0, "size=16k"))
			t.Cleanup(func() {
				if err := unix.Unmount(state, 0); err != nil {
					t.Error(err)
				}
			})
			a := &agent{harness: &harness{t: t, dir: t.TempDir()}, state: state}
			if c.name == "full" {
				for i := 0; ; i++ {
					err := os.WriteFile(filepath.Join(state, "junk"), bytes.Repeat([]byte("x"), 4096*(i+1)), 0o600)
					if errors.Is(err, syscall.ENOSPC) {
						break
					}
					must(t, err)
				}
			} else {
				must(t, unix.Mount("none", state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			}
			writeFile(t, a.dir, "a.yaml", podYAML("x", "a"))
			a.harness = startWith(t, Options{Dir: a.dir, State: state, Rescan: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
			a.eventually("the problem", func() bool { return len(a.problems()) == 1 })
			a.wantProblems("cannot keep the last good versions of manifests: ")
			a.wantProblems(c.want)
			a.write("b.yaml", podYAML("x", "b"))
			a.eventually("another pod", func() bool { return a.object("pod/x/b") != nil })
			if c.name == "full" {
				must(t, os.Remove(filepath.Join(state, "junk")))
			} else {
				must(t, unix.Mount("none", state, "", unix.MS_REMOUNT, "size=16k"))
			}
			a.write("c.yaml", podYAML("x", "c"))
			a.eventually("no problem", func() bool { return len(a.problems()) == 0 })
			a.wantCopies("a.yaml", "b.yaml", "c.yaml")
		})
	}
}

// In a container, the directory of the copies is a mount of its own in a read-only directory.
func TestMountedDirectoryOfCopies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a file system: needs root")
	}
	state := t.TempDir()
	mounted := filepath.Join(state, copiesDir)
	for _, dir := range []string{state, mounted} {
		must(t, os.MkdirAll(dir, 0o750), unix.Mount("none", dir, "tmpfs", 0, "size=64k,mode=750"))
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
	}
	must(t, unix.Mount("none", state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	a := &agent{harness: &harness{t: t, dir: t.TempDir()}, state: state}
	writeFile(t, a.dir, "a.yaml", podYAML("x", "a"))
	a.restart()
	a.restart(func() { must(t, os.Truncate(filepath.Join(a.dir, "a.yaml"), 0)); a.age("a.yaml") })
	a.wantNames(ns, pod)
	a.wantProblems("a.yaml: cannot be read: the file is empty; the last good content")
	a.wantCopies("a.yaml")
}

// A process that is killed while it writes leaves the former copy.
func TestKilledWhileWriting(t *testing.T) {
	a := newAgent(t)
	a.stop()
	must(t, os.WriteFile(filepath.Join(a.state, copiesDir, newCopy), []byte("half"), 0o600))
	a.restart(func() { must(t, os.Truncate(filepath.Join(a.dir, "p.yaml"), 0)); a.age("p.yaml") })
	a.wantNames(ns, pod, p, q)
}

// A restart without changes writes nothing.
func TestCopiesAreNotWrittenAgain(t *testing.T) {
	a := newAgent(t)
	a.stop()
	path := filepath.Join(a.state, copiesDir, "p.yaml")
	before, err := os.Stat(path)
	must(t, err)
	a.restart()
	a.stop()
	after, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Error("the copy was written again")
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestStrangers: a document without any field of an object, such as the values of a chart, and one without a kind that is of an API
// group that we do not read, or Chart.yaml, is named. It is not taken for a policy that cannot be
// read, unless the file had objects: these stay.
func TestStrangers(t *testing.T) {
	const values, half = "image: x\nreplicas: 2\n---\napiVersion: v2\nname: chart\n---\napiVersion: kustomize.config.k8s.io/v1beta1\nresources: [x]\n", "apiVersion: v1\nimage: x\n"
	a := &agent{harness: &harness{t: t, dir: t.TempDir()}, state: filepath.Join(t.TempDir(), "state")}
	writeFile(t, a.dir, "a.yaml", podYAML("x", "a"))
	writeFile(t, a.dir, "values.yaml", values)
	a.age("values.yaml")
	a.restart()
	const named, noKind = "document 1 (line 1): not an object of Kubernetes", ": kind: required, and must be a string"
	a.wantProblems(named, noKind, noKind)
	a.wantNames(ns, pod)
	if last := a.last(); len(last.Unknown) > 0 {
		t.Errorf("unknown %q", last.Unknown)
	}
	writeFile(t, a.dir, "values.yaml", values+"---\n"+half)
	a.age("values.yaml")
	a.restart()
	if last := a.last(); len(last.Unknown) > 0 {
		t.Errorf("unknown %q: it was read in full before", last.Unknown)
	}
	writeFile(t, a.dir, "half.yaml", values+"---\n"+half)
	a.age("half.yaml")
	a.sync()
	if last := a.last(); !reflect.DeepEqual(last.Unknown, []string{"half.yaml"}) {
		t.Errorf("unknown %q", last.Unknown)
	}
	must(t, os.Remove(filepath.Join(a.dir, "half.yaml")))
	must(t, os.Remove(filepath.Join(a.dir, "values.yaml")))
	writeFile(t, a.dir, "a.yaml", values)
	a.age("a.yaml")
	a.sync()
	a.wantNames(ns, pod)
	a.wantProblems("a.yaml: pod/x/a: not found in the file", named, noKind, noKind)
	writeFile(t, a.dir, "list.yaml", "apiVersion: v1\nkind: List\nitems: [{podSelector: {}}]\n")
	a.age("list.yaml")
	a.restart()
	a.wantNames(ns, pod)
	if last := a.last(); !reflect.DeepEqual(last.Unknown, []string{"list.yaml"}) {
		t.Errorf("unknown %q: each item of a List is an object", last.Unknown)
	}
}

// A directory that cannot be read deletes no copy.
func TestDirectoryGoneKeepsTheCopies(t *testing.T) {
	a := newAgent(t)
	a.stop()
	must(t, os.Rename(a.dir, a.dir+".away"))
	h := startWith(t, Options{Dir: a.dir, State: a.state, Rescan: time.Hour, Log: slog.New(slog.DiscardHandler)})
	h.eventually("the problem", func() bool { return len(h.problems()) > 0 })
	h.stop()
	if h.inSync() {
		t.Error("in sync without a directory")
	}
	a.wantCopies("a.yaml", "p.yaml")
	a.restart(func() {
		must(t, os.Rename(a.dir+".away", a.dir), os.Truncate(filepath.Join(a.dir, "p.yaml"), 0))
		a.age("p.yaml")
	})
	a.wantNames(ns, pod, p, q)
}
