package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestNoSelect: no code of the agent, of its libraries neither, calls select(2) or
// pselect(2), which know no descriptors above 1,023.
func TestNoSelect(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	agent := filepath.Join(t.TempDir(), "felixlike-agent")
	if out, err := exec.Command("go", "build", "-o", agent, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	symbols, err := exec.Command("go", "tool", "nm", agent).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`golang.org/x/sys/unix\.Ppoll|golang.org/x/sys/unix\.Socket`).Match(symbols) {
		t.Fatal("the symbols of the agent do not show its calls")
	}
	if found := regexp.MustCompile(`(?i)\S*(sys/unix|syscall)\.p?select6?\b`).FindAll(symbols, -1); len(found) > 0 {
		t.Errorf("the agent calls %s", found)
	}
}
