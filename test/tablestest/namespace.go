package tablestest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// Namespace is a network namespace that goes with the test.
type Namespace struct {
	Name string
	// FD is an open descriptor of it.
	FD int
}

var namespaces atomic.Int32

// NewNamespace makes a fresh namespace. The test is skipped without root or
// one of the tools.
func NewNamespace(t testing.TB, tools ...string) Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, tool := range append([]string{"ip"}, tools...) {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs the tool %s", tool)
		}
	}
	name := fmt.Sprintf("flx-table-%d-%d", os.Getpid(), namespaces.Add(1))
	Command(t, "", "ip", "netns", "add", name)
	t.Cleanup(func() { Command(t, "", "ip", "netns", "del", name) })
	f, err := os.Open("/run/netns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return Namespace{name, int(f.Fd())}
}

// Run runs a command in the namespace and returns its output.
func (n Namespace) Run(t testing.TB, args ...string) string {
	t.Helper()
	return n.Feed(t, "", args...)
}

// Feed runs a command in the namespace with the input.
func (n Namespace) Feed(t testing.TB, input string, args ...string) string {
	t.Helper()
	return Command(t, input, "ip", append([]string{"netns", "exec", n.Name}, args...)...)
}

// Command runs a command and returns its standard output; the
// test fails if the command does.
func Command(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Stdin = strings.NewReader(input)
	var out, complaints strings.Builder
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), complaints.String())
	}
	return out.String()
}
