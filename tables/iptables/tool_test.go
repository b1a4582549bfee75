package iptables

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// hangIn makes this test's binary, run as another process, start a program that
// does not end.
const hangIn = "FLX_TEST_HANG_IN"

// A restore must not outlive the process that planned it: it would write by
// numbers that a successor no longer goes by.
func TestProgramsDieWithUs(t *testing.T) {
	if dir := os.Getenv(hangIn); dir != "" {
		tools := &tools{restore: map[model.Family]string{model.IPv4: filepath.Join(dir, "program")}}
		t.Fatal(tools.load(t.Context(), model.IPv4, []byte("*filter\nCOMMIT\n")))
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	if err := os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/sh\necho $$ > "+file+".new\nmv "+file+".new "+file+"\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run=^TestProgramsDieWithUs$")
	c.Env = append(os.Environ(), hangIn+"="+dir)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	defer func() {
		if !killed {
			_ = c.Process.Kill()
		}
		_ = c.Wait()
	}()
	var pid string
	eventually.True(t, "the program has started", func() bool {
		text, err := os.ReadFile(file)
		pid = strings.TrimSpace(string(text))
		return err == nil
	})
	if !running(pid) {
		t.Fatal("the program does not run")
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed = true
	eventually.True(t, "the program has ended", func() bool { return !running(pid) })
}

// running reports whether a process does anything yet.
func running(pid string) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
