package e2e

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/model"
)

// rounds is how many times the backend is changed; killedEvery is the round in
// whose middle the agents are killed.
const (
	rounds      = 50
	killedEvery = 5
)

// TestBackendHandover changes the backends of live nodes again and again, while
// streams carry data, allowed connections are opened and denied ones are tried
// all the time, and kills the agents in the middle of every fifth change.
func TestBackendHandover(t *testing.T) {
	l := newLab(t)
	set(t, l, state(t, threeNodes, onlyFromC))
	nodes := []*lab.Node{l.Node("node1"), l.Node("node2"), l.Node("node3")}
	tr := startTraffic(t, l, [][2]string{{"c", "a"}, {"a", "b"}, {"a", "d"}}, [][2]string{{"b", "a"}, {"d", "a"}})
	backends := []string{"iptables-legacy", "iptables-nft", "nftables"}
	var took []time.Duration
	for round := range rounds {
		to := backends[round%len(backends)]
		if round%killedEvery == killedEvery-1 {
			killInTheMiddle(t, nodes, to, time.Duration(round)*time.Millisecond)
			continue
		}
		for _, n := range nodes {
			start := time.Now()
			change(t, n, to)
			took = append(took, time.Since(start))
		}
	}
	tr.stop(t)
	t.Logf("%d changes of a node's backend, the slowest in %s", len(took), slowest(took).Round(time.Millisecond))
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	for _, n := range nodes {
		change(t, n, "nftables")
		nothingLeft(t, n, "iptables-legacy", "iptables-nft", "ipsets")
		change(t, n, "iptables-nft")
		nothingLeft(t, n, "iptables-legacy", "nftables")
	}
}

func slowest(all []time.Duration) time.Duration {
	var most time.Duration
	for _, d := range all {
		most = max(most, d)
	}
	return most
}

// change changes the backend of a node and checks that it is in force.
func change(t *testing.T, n *lab.Node, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	agent := control.NewClient(n.ControlSocket())
	if err := agent.SetBackend(ctx, to); err != nil {
		t.Fatalf("%s to %s: %v", n.Name(), to, err)
	}
	s, err := agent.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Backend != to || s.Handover != nil {
		t.Errorf("%s: backend %s (%+v), wanted %s", n.Name(), s.Backend, s.Handover, to)
	}
}

// killInTheMiddle kills the agents a moment after they were told to change, and
// starts them again: they go by their configuration then, whatever was left.
func killInTheMiddle(t *testing.T, nodes []*lab.Node, to string, after time.Duration) {
	t.Helper()
	for _, n := range nodes {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		done := make(chan struct{})
		go func() {
			defer close(done)
			// Killed, it does not answer.
			_ = control.NewClient(n.ControlSocket()).SetBackend(ctx, to)
		}()
		pause(ctx, after)
		if err := n.KillAgent(); err != nil {
			t.Fatal(err)
		}
		<-done
		cancel()
		if err := n.StartAgent(); err != nil {
			t.Fatal(err)
		}
		if err := n.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// nothingLeft looks with the tools' own eyes for what backends leave.
func nothingLeft(t *testing.T, n *lab.Node, kinds ...string) {
	t.Helper()
	for _, kind := range kinds {
		script := map[string]string{
			"nftables":        "nft list tables | grep 'felixlike$'",
			"iptables-legacy": "(iptables-legacy-save; ip6tables-legacy-save) | grep -i flx",
			"iptables-nft":    "(iptables-nft-save; ip6tables-nft-save) 2>/dev/null | grep -i flx",
			"ipsets":          "ipset list -n",
		}[kind]
		if left := shell(t, n, script); left != "" {
			t.Errorf("left on %s of %s:\n%s", n.Name(), kind, left)
		}
	}
}

// shell runs a script on a node and returns what it prints.
func shell(t *testing.T, n *lab.Node, script string) string {
	t.Helper()
	var out []byte
	err := n.Namespace().Do(func() error {
		// A grep that finds nothing fails.
		out, _ = exec.Command("sh", "-c", script).Output()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
