package seeded

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawsVariable makes a child process of TestDraws print its draws.
const drawsVariable = "FELIXLIKE_TEST_DRAWS"

// TestDraws draws the same at each run, and something else from another seed.
func TestDraws(t *testing.T) {
	if os.Getenv(drawsVariable) != "" {
		Check(t, func(rt *rapid.T) { rt.Logf("%d", rapid.Uint64().Draw(rt, "number")) })
		return
	}
	number := regexp.MustCompile(`draw number: \w+`)
	draws := func(env string, args ...string) string {
		t.Helper()
		cmd := exec.Command(os.Args[0], append(args, "-test.run=^TestDraws$", "-test.v", "-rapid.v", "-rapid.checks=5")...)
		cmd.Env = append(os.Environ(), drawsVariable+"=yes", env)
		out, err := cmd.CombinedOutput()
		found := bytes.Join(number.FindAll(out, -1), []byte("\n"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%v: %s", err, out)
		}
		return string(found)
	}
	none := SeedVariable + "="
	fixed := draws(none)
	if again := draws(none); again != fixed {
		t.Errorf("first\n%s\nthen\n%s", fixed, again)
	}
	other := draws(SeedVariable + "=7")
	if other == fixed {
		t.Error("another seed draws the same")
	}
	if flagged := draws(none, "-rapid.seed=7"); flagged != other {
		t.Errorf("by the variable\n%s\nby the flag\n%s", other, flagged)
	}
}

// TestChecks: checks that run side by side each draw their own number, and the next one draws rapid's.
func TestChecks(t *testing.T) {
	short := 1
	if testing.Short() {
		short = 5 // rapid draws a fifth then
	}
	draws := func(check func(func(*rapid.T))) (n int) {
		check(func(*rapid.T) { n++ })
		return n * short
	}
	t.Run("side by side", func(t *testing.T) {
		for _, want := range []int{5, 30, 10, 200} {
			t.Run(strconv.Itoa(want), func(t *testing.T) {
				t.Parallel()
				for range 20 {
					if n := draws(func(prop func(*rapid.T)) { Checks(t, want, prop) }); n != want {
						t.Fatalf("%d draws, want %d", n, want)
					}
				}
			})
		}
	})
	if n := draws(func(prop func(*rapid.T)) { Check(t, prop) }); strconv.Itoa(n) != flag.Lookup("rapid.checks").DefValue {
		t.Errorf("%d draws after that", n)
	}
}

// TestAllDrawsAreSeeded finds the tests with draws that differ from run to run.
func TestAllDrawsAreSeeded(t *testing.T) {
	free := regexp.MustCompile(`rapid\.(Check|MakeCheck)\(|rand\.(Int|IntN|N|Uint32|Uint64|Float64|Perm|Shuffle)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../../internal/seeded/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if free.MatchString(line) {
				t.Errorf("%s:%d: use seeded.Check, or a source with a fixed seed: %s", strings.TrimPrefix(path, "../../"), i+1, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRand draws the same from one name, and something else from another name or seed.
func TestRand(t *testing.T) {
	first := Rand(t, "a").Uint64()
	if again := Rand(t, "a").Uint64(); again != first {
		t.Errorf("first %d, then %d", first, again)
	}
	if Rand(t, "b").Uint64() == first {
		t.Error("another name draws the same")
	}
	t.Setenv(SeedVariable, "7")
	if Rand(t, "a").Uint64() == first {
		t.Error("another seed draws the same")
	}
}
