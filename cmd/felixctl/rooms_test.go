package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNoProgramImportsTestCode: of the programs, only felixlab has anything of test/.
func TestNoProgramImportsTestCode(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "../felixlike-agent", "../felixlike-cni").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, p := range strings.Fields(string(out)) {
		if strings.HasPrefix(p, "github.com/felixlike/felixlike/test/") {
			t.Errorf("%s is in a program besides felixlab", p)
		}
	}
}

// TestInternalKnowsNoRoom: packages of internal/ import one another only.
func TestInternalKnowsNoRoom(t *testing.T) {
	const module = "github.com/felixlike/felixlike/"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../internal/...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, p := range strings.Fields(string(out)) {
		if strings.HasPrefix(p, module) && !strings.HasPrefix(p, module+"internal/") {
			t.Errorf("a package of internal/ imports %s", p)
		}
	}
}

// TestFelixctlHasNoAgent: what felixctl needs of backends is in packages of their own.
func TestFelixctlHasNoAgent(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, p := range strings.Fields(string(out)) {
		if p == "github.com/felixlike/felixlike/felixlike" {
			t.Error("felixctl links the agent")
		}
	}
}
