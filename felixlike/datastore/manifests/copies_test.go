package manifests

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/datastore"
)

// agent is a directory of manifests, with the state directory of an agent that is restarted.
type agent struct {
	*harness
	state string
	log   bytes.Buffer
}

func newAgent(t *testing.T) *agent {
	a := &agent{harness: &harness{t: t, dir: t.TempDir()}, state: filepath.Join(t.TempDir(), "state")}
	writeFile(t, a.dir, "a.yaml", podYAML("x", "a"))
	writeFile(t, a.dir, "p.yaml", policyYAML("x", "p", "a")+"---\n"+policyYAML("x", "q", "a"))
	a.restart()
	a.wantNames("namespace/x", "pod/x/a", "networkpolicy/x/p", "networkpolicy/x/q")
	a.wantProblems()
	return a
}

// restart ends the agent, and starts another one after a change of the files.
func (a *agent) restart(changes ...func()) {
	a.t.Helper()
	if a.stop != nil {
		a.stop()
	}
	for _, change := range changes {
		change()
	}
	a.log.Reset()
	a.harness = startWith(a.t, Options{Dir: a.dir, State: a.state, Rescan: time.Hour, Log: slog.New(slog.NewTextHandler(&a.log, nil))})
	a.sync()
}

// last returns the newest batch.
func (a *agent) last() datastore.Batch {
	a.t.Helper()
	all := a.delivered()
	if len(all) == 0 {
		a.t.Fatal("nothing was delivered")
	}
	return all[len(all)-1]
}

func (a *agent) copies() []string {
	a.t.Helper()
	entries, err := os.ReadDir(filepath.Join(a.state, copiesDir))
	if err != nil {
		a.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// wantCopies stops the agent, which then writes the last copies, and compares their names.
func (a *agent) wantCopies(want ...string) {
	a.t.Helper()
	a.stop()
	if got := a.copies(); !reflect.DeepEqual(got, want) {
		a.t.Errorf("copies %q; want %q", got, want)
	}
}

const (
	ns  = "namespace/x"
	pod = "pod/x/a"
	p   = "networkpolicy/x/p"
	q   = "networkpolicy/x/q"
)

// The last good version of a file that cannot be read, or not in full, survives a restart, and a second one.
// Status and log name the file, the reason and the age.
func TestLastGoodVersionSurvivesARestart(t *testing.T) {
	whole := policyYAML("x", "p", "a") + "---\n" + policyYAML("x", "q", "a")
	today := time.Now().UTC().Format("2006-01-02")
	for _, c := range []struct {
		name   string
		breaks func(t *testing.T, path string)
		want   []string
	}{
		{"a loop of links", func(t *testing.T, path string) {
			must(t, os.Remove(path), os.Symlink("p.yaml", path))
		}, []string{"p.yaml: cannot be read: open: too many levels of symbolic links; the last good content, which was first read at " + today}},
		{"a link to nothing", func(t *testing.T, path string) {
			must(t, os.Remove(path), os.Symlink("/nowhere/p.yaml", path))
		}, []string{"p.yaml: cannot be read: a link to a file that does not exist; the last good content, which was first read at " + today}},
		{"a directory", func(t *testing.T, path string) {
			must(t, os.Remove(path), os.Mkdir(path, 0o755))
		}, []string{"p.yaml: cannot be read: not a regular file; the last good content, which was first read at " + today}},
		{"truncated to nothing", func(t *testing.T, path string) {
			must(t, os.Truncate(path, 0))
		}, []string{"p.yaml: cannot be read: the file is empty; the last good content, which was first read at " + today}},
		{"half written", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte(whole[:len(whole)/2+40]), 0o600))
		}, []string{"networkpolicy/x/q: not found in the file, which cannot be read in full: the last good version, which was first read at " + today, "document 2"}},
		{"malformed", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte("kind: ["), 0o600))
		}, []string{
			"networkpolicy/x/p: not found in the file, which cannot be read in full: the last good version, which was first read at " + today,
			"networkpolicy/x/q: not found in the file", "document 1",
		}},
		{"an unknown field", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte(strings.Replace(whole, "podSelector", "podSelektor", 1)), 0o600))
		}, []string{"networkpolicy/x/p: spec.podSelektor: unknown field; the last good version, which was first read at " + today}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAgent(t)
			before := a.policy("x/p")
			a.restart(func() {
				c.breaks(t, filepath.Join(a.dir, "p.yaml"))
				if info, err := os.Lstat(filepath.Join(a.dir, "p.yaml")); err == nil && info.Mode().IsRegular() {
					a.age("p.yaml")
				}
			})
			for i := range 2 {
				if i > 0 {
					a.restart()
				}
				a.wantNames(ns, pod, p, q)
				a.wantProblems(c.want...)
				if after := a.policy("x/p"); !reflect.DeepEqual(before, after) {
					t.Errorf("the policy was %v; now %v", before, after)
				}
				last := a.delivered()[len(a.delivered())-1]
				// The file with an unknown field was read: only its object is of a former version.
				want := 1
				if c.name == "an unknown field" {
					want = 0
				}
				if last.Outdated != want || len(last.Unknown) > 0 {
					t.Errorf("outdated %d, want %d; unknown %q", last.Outdated, want, last.Unknown)
				}
				a.stop()
				if text := a.log.String(); !strings.Contains(text, "problem in manifests") || !strings.Contains(text, "first read at "+today) {
					t.Errorf("log:\n%s", text)
				}
			}
			// A whole file replaces it.
			a.restart(func() {
				must(t, os.RemoveAll(filepath.Join(a.dir, "p.yaml")))
				a.write("p.yaml", policyYAML("x", "new", "a"))
			})
			a.eventually("only the new policy", func() bool { a.sync(); return len(a.names()) == 3 })
			a.wantNames(ns, pod, "networkpolicy/x/new")
			a.wantProblems()
		})
	}
}

const (
	broken  = "kind: ["
	foreign = "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: m}\n"
)

// A policy is deleted beside an object of a kind that the agent does not use, and stays deleted.
func TestDeletedBesideAnUnusedKind(t *testing.T) {
	for _, other := range []string{
		foreign,
		"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: m}\n",
		"apiVersion: crd.antrea.io/v1beta1\nkind: TrafficControl\nmetadata: {name: m}\n",
	} {
		a := newAgent(t)
		a.write("p.yaml", policyYAML("x", "p", "a")+"---\n"+other)
		a.age("p.yaml")
		a.sync()
		a.wantNames(ns, pod, p)
		a.write("p.yaml", other)
		a.age("p.yaml")
		a.sync()
		a.wantNames(ns, pod)
		if last := a.last(); last.Outdated != 0 || len(last.Unknown) > 0 || len(last.Problems) != 1 {
			t.Errorf("outdated %d, unknown %q, problems %v", last.Outdated, last.Unknown, last.Problems)
		}
		a.restart()
		a.wantNames(ns, pod)
	}
}

// An object that may have a mistyped kind of ours, or cannot be trusted, keeps the objects that its file lacks. Status names each object.
func TestMissingBesideAnUnknownKind(t *testing.T) {
	for _, other := range []string{
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolcy\n", "apiVersion: v1\nkind: Pdo\n", "apiVersion: crd.antrea.io/v1beta1\nkind: Teir\n",
		"kind: Policy\n", "apiVersion: 7\nkind: ServiceMonitor\n", foreign + "kind: ServiceMonitor\n",
	} {
		a := newAgent(t)
		a.write("p.yaml", other)
		a.age("p.yaml")
		a.sync()
		a.wantNames(ns, pod, p, q)
		missing := ": not found in the file, which cannot be read in full: the last good version stays in force"
		problems := strings.Join(a.problems(), "\n")
		if len(a.problems()) != 3 || !strings.Contains(problems, p+missing) || !strings.Contains(problems, q+missing) {
			t.Errorf("%s: problems\n%s", other, problems)
		}
		if last := a.last(); last.Outdated != 1 || len(last.Unknown) > 0 {
			t.Errorf("%s: outdated %d, unknown %q", other, last.Outdated, last.Unknown)
		}
	}
}

// A file that is cut when it is read for the first time is not known, until it is read in full: it has no copy.
func TestCutAtTheFirstReading(t *testing.T) {
	a := &agent{harness: &harness{t: t, dir: t.TempDir()}, state: filepath.Join(t.TempDir(), "state")}
	write := func(text string) {
		t.Helper()
		writeFile(t, a.dir, "p.yaml", text)
		a.age("p.yaml")
	}
	notKnown := func() {
		t.Helper()
		if last := a.last(); !reflect.DeepEqual(last.Unknown, []string{"p.yaml"}) || last.Outdated != 0 {
			t.Errorf("unknown %q, outdated %d", last.Unknown, last.Outdated)
		}
	}
	const effect = "; no version of the file was ever read in full: a policy in this part is not in force"
	writeFile(t, a.dir, "a.yaml", podYAML("x", "a"))
	write(broken)
	for range 2 {
		a.restart()
		notKnown()
		a.wantProblems(effect)
		a.wantCopies("a.yaml")
	}
	// Nor is one of which a part can be read, now and later.
	a.restart(func() { write(policyYAML("x", "p", "a") + "---\n" + broken) })
	notKnown()
	a.wantNames(ns, pod, p)
	write(policyYAML("x", "q", "a") + "---\n" + broken)
	a.sync()
	notKnown()
	a.wantNames(ns, pod, p, q)
	write("")
	a.sync()
	notKnown()
	a.wantNames(ns, pod, p, q)
	a.wantCopies("a.yaml")
	// A whole one is known, also after it was cut again.
	a.restart(func() { write(policyYAML("x", "q", "a")) })
	a.wantNames(ns, pod, q)
	a.wantProblems()
	if last := a.last(); len(last.Unknown) > 0 {
		t.Errorf("unknown %q", last.Unknown)
	}
	a.restart(func() { write(broken) })
	a.wantNames(ns, pod, q)
	if last := a.last(); len(last.Unknown) > 0 || last.Outdated != 1 {
		t.Errorf("unknown %q, outdated %d", last.Unknown, last.Outdated)
	}
	a.wantCopies("a.yaml", "p.yaml")
}

// A file without objects has a last good version too, of no time.
func TestLastGoodVersionWithoutObjects(t *testing.T) {
	a := newAgent(t)
	a.write("p.yaml", foreign)
	a.age("p.yaml")
	a.sync()
	a.restart(func() { must(t, os.Truncate(filepath.Join(a.dir, "p.yaml"), 0)); a.age("p.yaml") })
	a.wantProblems("p.yaml: cannot be read: the file is empty; the last good content, which has no objects, stays in force")
}

// What changes alone in the counts is delivered.
func TestCountsAreDelivered(t *testing.T) {
	var got []datastore.Batch
	r := &run{source: New(Options{Log: slog.New(slog.DiscardHandler)}), deliver: func(b datastore.Batch) { got = append(got, b) }}
	for _, result := range []scan{{}, {outdated: 1}, {outdated: 1}, {unknown: []string{"a.yaml"}}, {unknown: []string{"b.yaml"}}, {unknown: []string{"b.yaml"}}, {}} {
		r.result = result
		r.publish()
		if last := got[len(got)-1]; last.Outdated != result.outdated || !reflect.DeepEqual(last.Unknown, result.unknown) {
			t.Errorf("%d outdated and %q unknown after %d, %q", last.Outdated, last.Unknown, result.outdated, result.unknown)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d batches; want 5", len(got))
	}
}

// What was deleted while no agent ran is deleted, with its copy; a file that was renamed has the new name.
func TestDeletedWhileTheAgentIsDown(t *testing.T) {
	a := newAgent(t)
	a.restart(func() { must(t, os.Remove(filepath.Join(a.dir, "p.yaml"))) })
	a.wantNames(ns, pod)
	a.wantProblems()
	a.wantCopies("a.yaml")

	a = newAgent(t)
	a.restart(func() { must(t, os.Rename(filepath.Join(a.dir, "p.yaml"), filepath.Join(a.dir, "r.yaml"))) })
	a.wantNames(ns, pod, p, q)
	a.wantProblems()
	a.wantCopies("a.yaml", "r.yaml")
}

// Another directory begins without copies, also if its files have the same names.
func TestCopiesAreOfOneDirectory(t *testing.T) {
	a := newAgent(t)
	a.stop()
	a.dir = t.TempDir()
	writeFile(t, a.dir, "p.yaml", "")
	a.restart(func() { a.age("p.yaml") })
	a.wantNames()
	a.wantProblems("p.yaml: cannot be read: the file is empty; its objects are not known; policies in it are not in force")
	if last := a.delivered()[len(a.delivered())-1]; !reflect.DeepEqual(last.Unknown, []string{"p.yaml"}) || last.Outdated != 0 {
		t.Errorf("unknown %q, outdated %d", last.Unknown, last.Outdated)
	}
	a.wantCopies("p.yaml") // not used, and the new directory has a file of this name
}

// An object with an error has a good version from another file. That file's deletion moves the version to the copy of the file with the error.
func TestCopyTakesTheVersionOfADeletedFile(t *testing.T) {
	for _, leave := range []func(a *agent){
		func(a *agent) { a.remove("p.yaml") },
		func(a *agent) { a.write("p.yaml", policyYAML("x", "other", "a")); a.age("p.yaml") },
	} {
		a := newAgent(t)
		a.write("r.yaml", policyYAML("x", "p", "b")+"  nonsense: 1\n")
		a.sync()
		leave(a)
		a.sync()
		before := a.policy("x/p")
		a.restart()
		if after := a.policy("x/p"); !reflect.DeepEqual(before, after) {
			t.Errorf("the policy was %v; now %v", before, after)
		}
	}
}

// withoutOverride calls a function in a thread that permissions of files bind, also if root calls it.
func withoutOverride(t *testing.T, call func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		err = errors.Join(err, unix.Capset(&header, &data[0]))
		if err == nil {
			call()
		}
		done <- err
	}()
	must(t, <-done)
}

// Only root reads the copies, and a policy that fails closed stays closed.
func TestCopiesOfClosedPolicies(t *testing.T) {
	a := newAgent(t)
	a.write("p.yaml", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nkind: NetworkPolicy\nmetadata: {name: twice, namespace: x}\nspec: {podSelector: {}, ingress: [{}]}\n")
	a.age("p.yaml")
	a.sync()
	a.wantNames(ns, pod, "networkpolicy/x/twice (closed)")
	a.restart(func() { must(t, os.Truncate(filepath.Join(a.dir, "p.yaml"), 0)); a.age("p.yaml") })
	a.wantNames(ns, pod, "networkpolicy/x/twice (closed)")
	a.stop()
	for path, want := range map[string]os.FileMode{copiesDir: 0o700, copiesDir + "/a.yaml": 0o600, copiesDir + "/p.yaml": 0o600} {
		info, err := os.Stat(filepath.Join(a.state, path))
		must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o; want %o", path, info.Mode().Perm(), want)
		}
	}
}
