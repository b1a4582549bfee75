// Package scripts tests the scripts beside it. It holds only tests.
package scripts

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// progress runs the script. The times that it prints are replaced by N.
func progress(t *testing.T, quiet, long string) (io.WriteCloser, func() string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./progress", quiet, long)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	return in, func() string {
		lines.Scan()
		words := strings.Fields(lines.Text())
		for i, w := range words {
			if w = strings.TrimLeft(w, "("); w != "" && strings.Trim(w, "0123456789") == "" {
				words[i] = strings.Replace(words[i], w, "N", 1)
			}
		}
		return strings.Join(words, " ")
	}
}

// TestProgressOfTests shows failures, long tests and packages as they end, and
// nothing of paused tests, subtests that pass and packages without tests. A name that is
// shell code is only a name.
func TestProgressOfTests(t *testing.T) {
	in, next := progress(t, "60", "0")
	if _, err := io.WriteString(in, `=== RUN   TestA
=== RUN   TestA/x
--- PASS: TestA/x (0.00s)
=== RUN   TestA/"$9"_$(exit_3)_`+"`"+`exit`+"`"+`_]
--- PASS: TestA/"$9"_$(exit_3)_`+"`"+`exit`+"`"+`_] (0.00s)
--- FAIL: TestA/y (0.00s)
--- PASS: TestA (0.00s)
?   	example.org/none	[no test files]
ok  	example.org/some	0.001s
`); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--- FAIL: TestA/y (0.00s)", "N s TestA", "ok example.org/some 0.001s"} {
		if got := next(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestProgressOfSilence names the tests that run while nothing ends.
func TestProgressOfSilence(t *testing.T) {
	in, next := progress(t, "1", "0")
	for _, step := range []struct{ text, want string }{
		{"", "... no test to name: go builds, or runs packages side by side"},
		{"=== RUN   TestA\n=== PAUSE TestA\n=== RUN   TestB\n", "... TestB (N s)"},
		{"=== RUN   TestB/x\n=== PAUSE TestB/x\n=== CONT  TestA\n=== CONT  TestB/x\n", "... TestA (N s), TestB/x (N s)"},
		{"--- PASS: TestB/x (0.00s)\n", "... TestA (N s), TestB (N s)"},
	} {
		if _, err := io.WriteString(in, step.text); err != nil {
			t.Fatal(err)
		}
		got := next()
		for deadline := time.Now().Add(10 * time.Second); got != step.want && time.Now().Before(deadline); {
			got = next() // what ran before the step
		}
		if got != step.want {
			t.Errorf("after %q: %q, want %q", step.text, got, step.want)
		}
	}
}
