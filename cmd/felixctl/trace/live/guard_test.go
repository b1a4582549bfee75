package live

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// namespaceEnv has the test binary trace in a namespace until it is killed.
const namespaceEnv = "FELIXLIKE_TEST_TRACE_NAMESPACE"

func TestMain(m *testing.M) {
	if name := os.Getenv(namespaceEnv); name != "" {
		if _, err := startNFT(context.Background(), Node{Name: "n1", NetNS: name}, tracedPacket()); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("tracing")
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

func tracedPacket() trace.Packet {
	return trace.Packet{
		Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2"), Protocol: model.TCP, SourcePort: 61000, Port: 80,
	}
}

// traceNode makes a namespace for a node.
func traceNode(t *testing.T) Node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("flx-live-%d", os.Getpid())
	ns, err := namespace.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ns.Close()
		if err := namespace.Delete(name); err != nil {
			t.Error(err)
		}
	})
	return Node{Name: "n1", NetNS: namespace.Path(name)}
}

func rules(t *testing.T, n Node) string {
	t.Helper()
	out, err := n.Run(t.Context(), "nft", "list", "ruleset")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRuleGoesWithItsProcess: the rule that traces is narrow, and is gone when the
// trace ends, and when its process is killed.
func TestRuleGoesWithItsProcess(t *testing.T) {
	n := traceNode(t)
	tr, err := startNFT(t.Context(), n, tracedPacket())
	if err != nil {
		t.Fatal(err)
	}
	if got := rules(t, n); strings.Count(got, "ip saddr 10.0.0.1 ip daddr 10.0.0.2 tcp sport 61000 tcp dport 80 meta nftrace set 1") != 2 {
		t.Errorf("rules while tracing:\n%s", got)
	}
	if err := tr.end(); err != nil {
		t.Error(err)
	}
	if got := rules(t, n); got != "" {
		t.Errorf("rules after the trace:\n%s", got)
	}

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), namespaceEnv+"="+n.NetNS)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 200)
	if k, _ := out.Read(buffer); string(buffer[:k]) != "tracing\n" {
		t.Fatalf("the child says %q", buffer[:k])
	}
	if got := rules(t, n); !strings.Contains(got, "nftrace") {
		t.Errorf("rules while the child traces:\n%s", got)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	eventually.True(t, "neither rules nor processes are left after the child was killed", func() bool { return rules(t, n) == "" && len(processes(t, n)) == 0 },
		func() string { return fmt.Sprintf("rules:\n%s\nprocesses: %v", rules(t, n), processes(t, n)) })
}

// processes lists those that are in the node's namespace.
func processes(t *testing.T, n Node) []string {
	t.Helper()
	var own, other unix.Stat_t
	if err := unix.Stat(n.NetNS, &own); err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range all {
		// A thread of this process is there, which may be its first.
		if dir != fmt.Sprintf("/proc/%d", os.Getpid()) && unix.Stat(dir+"/ns/net", &other) == nil && other.Ino == own.Ino && other.Dev == own.Dev {
			line, _ := os.ReadFile(dir + "/cmdline")
			found = append(found, dir+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// TestLeftoversAreRemoved: a trace removes the leftovers of a crash, and keeps those of a
// running process.
func TestLeftoversAreRemoved(t *testing.T) {
	n := traceNode(t)
	mine := fmt.Sprintf("%s%d", tracePrefix, os.Getpid())
	for _, name := range []string{tracePrefix + "999999999", mine, "flx-trace"} {
		if _, err := n.Run(t.Context(), "nft", "add", "table", "inet", name); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeLeftovers(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	got := rules(t, n)
	if strings.Contains(got, "999999999") || !strings.Contains(got, mine) || !strings.Contains(got, "flx-trace {") {
		t.Errorf("left:\n%s", got)
	}
}
