package manifests

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/datastore"
)

func TestObjectsOfAllKinds(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", `# a comment alone
---
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.1.0.0/24}
---
apiVersion: v1
kind: Namespace
metadata: {name: x, labels: {team: a, kubernetes.io/metadata.name: lie}}
...
--- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: x}}
---
`)
	writeFile(t, dir, "b.yml", "apiVersion: v1\r\nkind: List\r\nitems:\r\n- apiVersion: v1\r\n  kind: Pod\r\n  metadata: {name: b, namespace: \"y\"}\r\n")
	writeFile(t, dir, "c.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c","annotations":{"smile":"\ud83d\ude00"}}}
{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"deny","namespace":"x"},"spec":{"podSelector":{}}}`)
	writeFile(t, dir, "d.json", `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicyList","metadata":{},"items":[
{"metadata":{"name":"listed","namespace":"x"},"spec":{"podSelector":{}}}]}`)
	writeFile(t, dir, "notes.txt", "not: [yaml")
	writeFile(t, dir, ".hidden.yaml", podYAML("x", "hidden"))
	if err := os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	h := start(t, dir, time.Hour)
	if revision := h.sync(); revision != 1 {
		t.Errorf("revision %d; want 1", revision)
	}
	h.wantNames("node/n1", "namespace/x", "namespace/y", "namespace/default", "pod/x/a", "pod/y/b", "pod/default/c", "networkpolicy/x/deny", "networkpolicy/x/listed")
	h.wantProblems()
	if !h.inSync() {
		t.Error("not in sync after the first listing")
	}
	if revision := h.sync(); revision != 1 {
		t.Errorf("revision %d after a scan that changed nothing; want 1", revision)
	}
}

func TestEventsAreOrdered(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", policyYAML("x", "p", "a")+"---\n"+podYAML("x", "a")+"---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
	h := start(t, dir, time.Hour)
	h.sync()
	h.remove("a.yaml")
	h.sync()
	var got []string
	for _, b := range h.batches {
		for _, e := range b.Events {
			switch e.(type) {
			case datastore.NodeSet:
				got = append(got, "+node")
			case datastore.NamespaceSet:
				got = append(got, "+namespace")
			case datastore.PodSet:
				got = append(got, "+pod")
			case datastore.NetworkPolicySet:
				got = append(got, "+policy")
			case datastore.NodeDeleted:
				got = append(got, "-node")
			case datastore.NamespaceDeleted:
				got = append(got, "-namespace")
			case datastore.PodDeleted:
				got = append(got, "-pod")
			case datastore.NetworkPolicyDeleted:
				got = append(got, "-policy")
			}
		}
	}
	want := []string{"+node", "+namespace", "+pod", "+policy", "-policy", "-pod", "-namespace", "-node"}
	if !slices.Equal(got, want) {
		t.Errorf("events %v; want %v", got, want)
	}
}

func TestChangesAreNoticed(t *testing.T) {
	dir := t.TempDir()
	h := start(t, dir, time.Hour)
	h.eventually("in sync", h.inSync)
	h.write("a.yaml", podYAML("x", "a"))
	h.eventually("pod", func() bool { return h.object("pod/x/a") != nil })
	h.overwrite("a.yaml", podYAML("x", "b"))
	h.eventually("other pod", func() bool { return h.object("pod/x/b") != nil && h.object("pod/x/a") == nil })
	h.remove("a.yaml")
	h.eventually("nothing", func() bool { return len(h.names()) == 0 })
}

func TestPeriodicRescan(t *testing.T) {
	dir := t.TempDir()
	h := start(t, dir, 20*time.Millisecond)
	h.eventually("in sync", h.inSync)
	// A link to a file elsewhere: inotify says nothing about writes to it.
	elsewhere := t.TempDir()
	writeFile(t, elsewhere, "real", podYAML("x", "a"))
	if err := os.Symlink(filepath.Join(elsewhere, "real"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	h.eventually("pod", func() bool { return h.object("pod/x/a") != nil })
	writeFile(t, elsewhere, "real", podYAML("x", "b"))
	h.eventually("other pod", func() bool { return h.object("pod/x/b") != nil })
}

func TestConfigMapSwitch(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), "a.yaml", text)
		link := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", podYAML("x", "a"))
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	h := start(t, dir, time.Hour)
	h.eventually("pod", func() bool { return h.object("pod/x/a") != nil })
	version("..2", podYAML("x", "b"))
	h.eventually("other pod", func() bool { return h.object("pod/x/b") != nil })
}

// TestRewriteWithinTheClocksGrain writes a file of the same size, inode and time: only its content differs.
func TestRewriteWithinTheClocksGrain(t *testing.T) {
	dir := t.TempDir()
	h := start(t, dir, time.Hour)
	for _, name := range []string{"a", "b", "c", "d"} {
		h.overwrite("a.yaml", podYAML("x", name))
		h.age("a.yaml")
		h.sync()
		h.wantNames("namespace/x", "pod/x/"+name)
	}
}

func TestUnchangedFilesAreNotParsedAgain(t *testing.T) {
	dir := t.TempDir()
	s := newScanner(dir, false, nil)
	writeFile(t, dir, "a.yaml", podYAML("x", "a"))
	if got := s.scan(false); len(got.events) != 2 {
		t.Fatalf("first scan: %d events", len(got.events))
	}
	before := s.files["a.yaml"]
	for _, force := range []bool{false, true} {
		if got := s.scan(force); len(got.events) != 0 || s.files["a.yaml"] != before {
			t.Errorf("scan of an unchanged file (forced %v): %d events, parsed again %v", force, len(got.events), s.files["a.yaml"] != before)
		}
	}
}

func TestDirectoryAbsentAtStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "late")
	h := start(t, dir, time.Hour)
	h.eventually("problem", func() bool { return len(h.problems()) == 1 })
	h.wantProblems("DIR: directory DIR: cannot be read: no such file or directory")
	if h.inSync() {
		t.Error("in sync without a directory")
	}
	if _, err := h.source.Sync(context.Background()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Sync without a directory: %v; want that it does not exist", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.write("a.yaml", podYAML("x", "a"))
	h.eventually("pod", func() bool { return h.object("pod/x/a") != nil })
	h.wantProblems()
}

func TestDirectoryRemovedAndMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "a.yaml", podYAML("x", "a"))
	h := start(t, dir, time.Hour)
	h.sync()
	// Moved away as a whole: no file was removed.
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	h.eventually("problem", func() bool { return len(h.problems()) == 1 })
	h.wantProblems("the former content stays in force")
	h.wantNames("namespace/x", "pod/x/a")
	if err := os.Mkdir(dir+".new", 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+".new", "b.yaml", podYAML("x", "b"))
	if err := os.Rename(dir+".new", dir); err != nil {
		t.Fatal(err)
	}
	h.eventually("new pod", func() bool { return h.object("pod/x/b") != nil && h.object("pod/x/a") == nil })
	h.wantProblems()
	// The new directory is watched, not the old one.
	h.write("c.yaml", podYAML("x", "c"))
	h.eventually("third pod", func() bool { return h.object("pod/x/c") != nil })
}

// TestYoung: a file that is written between a look at the clock and its reading is young.
func TestYoung(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		what          string
		looked, mtime time.Time
		want          bool
	}{
		{"just written", now, now, true},
		{"written since", now.Add(-time.Second), now, true},
		{"written before", now, now.Add(-settleTime), false},
		{"in the future", now, now.Add(time.Hour), false},
	} {
		if got := (stamp{mtime: test.mtime}).young(test.looked); got != test.want {
			t.Errorf("%s: %v", test.what, got)
		}
	}
}

func TestTruncatedFileDeletesNothing(t *testing.T) {
	dir := t.TempDir()
	full := podYAML("x", "a") + "---\n" + policyYAML("x", "p", "a")
	writeFile(t, dir, "a.yaml", full)
	h := start(t, dir, time.Hour)
	h.sync()
	for i, tries := 0, 1; i < 3; tries++ {
		before := len(h.delivered())
		// Truncated, and for the moment empty, as a writer leaves it.
		began := time.Now()
		h.overwrite("a.yaml", "")
		done := make(chan uint64, 1)
		go func() { done <- h.sync() }()
		time.Sleep(time.Duration(i) * settleTime / 4)
		h.overwrite("a.yaml", full)
		empty := time.Since(began)
		<-done
		// A machine that kept the writer from running has left the file empty for too long.
		// The clock of files may be behind by a tick.
		if empty >= settleTime-20*time.Millisecond {
			if tries == 50 {
				t.Fatalf("the file cannot be written in time: it was empty for %s", empty)
			}
			h.sync()
			continue
		}
		h.wantNames("namespace/x", "pod/x/a", "networkpolicy/x/p")
		for _, b := range h.delivered()[before:] {
			t.Errorf("revision %d: %d events; want none", b.Revision, len(b.Events))
		}
		i++
	}
	// A file that stays empty is an error.
	h.overwrite("a.yaml", " \n")
	h.sync()
	h.wantProblems("a.yaml: cannot be read: the file is empty; the former content stays in force")
	h.wantNames("namespace/x", "pod/x/a", "networkpolicy/x/p")
	// One without objects is believed.
	h.overwrite("a.yaml", "# nothing\n")
	h.sync()
	h.wantProblems()
	h.wantNames()
	// The time until it was believed counts.
	if last := h.batches[len(h.batches)-1]; time.Since(last.Seen) < settleTime/2 {
		t.Errorf("seen only %s ago", time.Since(last.Seen))
	}
}

// TestEmptyFileAtTheStart: an agent that starts does not know what an empty file had, nor one
// that cannot be read, and says that it enforces nothing of them.
func TestEmptyFileAtTheStart(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", "")
	writeFile(t, dir, "b.yaml", podYAML("x", "b"))
	if err := os.Symlink("c.yaml", filepath.Join(dir, "c.yaml")); err != nil {
		t.Fatal(err)
	}
	h := start(t, dir, time.Hour)
	h.sync()
	h.wantNames("namespace/x", "pod/x/b")
	h.wantProblems("a.yaml: cannot be read: the file is empty; its objects are not known; policies in it are not in force",
		"c.yaml: cannot be read: open: too many levels of symbolic links; its objects are not known; policies in it are not in force")
	// Once read, it has a former content.
	h.write("a.yaml", podYAML("x", "a"))
	h.remove("c.yaml")
	h.sync()
	h.wantProblems()
	h.overwrite("a.yaml", "")
	h.sync()
	h.wantProblems("a.yaml: cannot be read: the file is empty; the former content stays in force")
	h.wantNames("namespace/x", "pod/x/a", "pod/x/b")
}

func TestBrokenYAMLKeepsWhatTheFileHeld(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", podYAML("x", "a")+"---\n"+policyYAML("x", "p", "a"))
	h := start(t, dir, time.Hour)
	h.sync()
	h.overwrite("a.yaml", podYAML("x", "new")+"---\n"+"apiVersion: networking.k8s.io/v1\nkind: [")
	h.age("a.yaml")
	h.sync()
	h.wantNames("namespace/x", "pod/x/a", "pod/x/new", "networkpolicy/x/p")
	h.wantProblems("a.yaml: networkpolicy/x/p: not found in the file", "a.yaml: pod/x/a: not found in the file",
		"a.yaml: document 2 (line 5): line 7: did not find expected node content")
	h.write("b.yaml", podYAML("x", "b"))
	h.sync()
	h.wantNames("namespace/x", "pod/x/a", "pod/x/new", "pod/x/b", "networkpolicy/x/p")
	h.overwrite("a.yaml", podYAML("x", "new"))
	h.age("a.yaml")
	h.sync()
	h.wantNames("namespace/x", "pod/x/b", "pod/x/new")
	h.wantProblems()
}

func TestBrokenFileIsRemoved(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", podYAML("x", "a"))
	h := start(t, dir, time.Hour)
	h.sync()
	h.overwrite("a.yaml", "kind: [")
	h.sync()
	h.wantNames("namespace/x", "pod/x/a")
	h.remove("a.yaml")
	h.sync()
	h.wantNames()
	h.wantProblems()
}

func TestUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", podYAML("x", "a"))
	h := start(t, dir, time.Hour)
	h.sync()
	h.remove("a.yaml")
	if err := unix.Mkfifo(filepath.Join(dir, "a.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.sync()
	h.wantNames("namespace/x", "pod/x/a")
	h.wantProblems("a.yaml: file a.yaml: cannot be read: not a regular file; the former content stays in force")
	h.write("a.yaml", podYAML("x", "a"))
	h.sync()
	h.wantProblems()
}

func TestSyncContainsWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	h := start(t, dir, time.Hour)
	for i := range 8 {
		name := "pod" + strconv.Itoa(i)
		h.write("a.yaml", podYAML("x", name))
		h.sync()
		h.wantNames("namespace/x", "pod/x/"+name)
	}
}

func TestSyncEnds(t *testing.T) {
	s := New(Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync before Run: %v; want cancelled", err)
	}
	if err := s.Run(ctx, func(datastore.Batch) {}); err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := s.Sync(context.Background()); !errors.Is(err, errEnded) {
		t.Errorf("Sync after Run: %v; want ended", err)
	}
}
