package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
)

// sleeper starts a process that sleeps, with a command line of our choice.
func sleeper(t *testing.T, argv0 string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", "while :; do sleep 0.05; done", "sh"}, args...)...)
	cmd.Args[0] = argv0
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	return cmd
}

func TestProcessNeedsItsStartTime(t *testing.T) {
	p, err := processOf(os.Getpid(), "this test")
	if err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Error("this process does not look alive")
	}
	p.Start++
	if p.Alive() {
		t.Error("a process id that came around again was believed")
	}
	if err := endProcess(p, time.Second); err != nil {
		t.Errorf("ending a process that is gone: %v", err)
	}
}

func TestCleanupEndsRecordedAndOwnProcessesOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	root := t.TempDir()
	name := fmt.Sprintf("t%d", os.Getpid())
	dir := filepath.Join(root, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := newRecord(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	recorded := sleeper(t, "sh", "recorded")
	unrecorded := sleeper(t, "felixlike-agent", "--run-dir="+dir+"/agent")
	otherLab := sleeper(t, "felixlike-agent", "--run-dir="+dir+"2/agent")
	editor := sleeper(t, "vi", dir+"/agent.log")
	if err := r.addProcess(recorded.Process.Pid, "recorded"); err != nil {
		t.Fatal(err)
	}
	ns, err := newNamespace(r, fabricNamespace(name))
	if err != nil {
		t.Fatal(err)
	}
	ns.Close()
	// The owner is this test: a wrong start time makes it look dead.
	r.Owner.Start++
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Cleanup(root, name); err != nil {
			t.Fatal(err)
		}
	}
	for cmd, wantAlive := range map[*exec.Cmd]bool{recorded: false, unrecorded: false, otherLab: true, editor: true} {
		_, err := startTime(cmd.Process.Pid)
		if alive := err == nil; alive != wantAlive {
			t.Errorf("%v: alive %v, want %v", cmd.Args, alive, wantAlive)
		}
	}
	if namespace.Exists(fabricNamespace(name)) {
		t.Error("the namespace is still there")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lab's folder is still there: %v", err)
	}
}

func TestExistsNamesOtherLabs(t *testing.T) {
	root := t.TempDir()
	if err := Exists(root, "demo"); !errors.Is(err, ErrNoLab) {
		t.Errorf("no lab at all: %v", err)
	}
	if err := os.Mkdir(filepath.Join(root, "demo"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Exists(root, "demo"); err != nil {
		t.Errorf("a lab that is there: %v", err)
	}
	if err := Exists(root, "dmeo"); !errors.Is(err, ErrNoLab) || !strings.Contains(err.Error(), "demo") {
		t.Errorf("a typing error: %v", err)
	}
}
