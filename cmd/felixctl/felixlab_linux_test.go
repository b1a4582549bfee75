package main

import (
	"strings"
	"testing"
)

func TestFelixlabOutput(t *testing.T) {
	for args, want := range map[string]bool{
		"":                           false,
		"status":                     false,
		"help":                       false,
		"help status":                false,
		"--help":                     false,
		"lab":                        true,
		"lab up --backend nftables":  true,
		"lab --help":                 true,
		"bench":                      true,
		"bench run":                  true,
		"bench --help":               true,
		"help lab up":                true,
		"help bench":                 true,
		"__complete lab":             false, // which command is meant is felixctl's to say
		"__complete lab up":          true,
		"__completeNoDesc bench run": true,
		"trace lab":                  false,
	} {
		if got := forFelixlab(strings.Fields(args)); got != want {
			t.Errorf("felixctl %s: %v", args, got)
		}
	}
}

func TestMissingFelixlabIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := runFelixlab([]string{"felixctl", "lab"}); err == nil || !strings.Contains(err.Error(), "felixlab not found beside") {
		t.Errorf("error %v", err)
	}
}
