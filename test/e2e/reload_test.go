package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/verify"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestReloadedDump removes the state of the nodes, and loads
// the output of felixctl dump in its place: every probe of the case goes as before.
// The tools encode some rules in another way than the agent. A new agent
// writes these anew.
func TestReloadedDump(t *testing.T) {
	t.Parallel()
	sample := readSteps(t, "../truthtable/testdata/sample.jsonl")
	for i, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Backend: backend})
			for j, family := range model.Families() {
				at := len(sample) - 1 - 5*i - j
				judge(t, l, sample[at:at+1], family)
				nodes := l.Status(t.Context()).Nodes
				for _, n := range nodes {
					if err := l.Node(n.Name).KillAgent(); err != nil {
						t.Fatal(err)
					}
					reload(t, l.Node(n.Name), backend)
				}
				judgeAsItIs(t, l, &sample[at], family)
				for _, n := range nodes {
					if err := l.Node(n.Name).StartAgent(); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// judgeAsItIs tries the probes of a step without bringing the lab there.
func judgeAsItIs(t *testing.T, l *lab.Lab, step *truthtable.Step, family model.Family) {
	t.Helper()
	probes, err := verify.Probes(step, family)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range l.Probe(t.Context(), probes, 0) {
		expect := step.Probes[i].Expect
		if expect != nil && *expect && !r.Through { // a busy machine may be late, a rule that drops is not
			r = l.Probe(t.Context(), probes[i:i+1], patience)[0]
		}
		if expect != nil && (!r.Tried || r.Through != *expect) {
			t.Errorf("%s: %s -> %s %s/%d: expected through=%v, %s", step, r.Probe.From, r.Probe.To, r.Probe.Protocol, r.Probe.Port, *expect, r.Reason)
		}
	}
}

// reload reads, removes and loads again the state of a node without agent.
func reload(t *testing.T, n *lab.Node, backend string) {
	t.Helper()
	at := live.Node{NetNS: n.Namespace().Path(), OVSRunDir: n.OVSDir(), Bridge: lab.Bridge}
	parts, err := live.Read(t.Context(), at, live.Options{Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	s, err := live.Parse(parts)
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Count(); c.Foreign > 0 || c.Flows == 0 || c.Rules == 0 {
		t.Fatalf("%s: read %+v", n.Name(), c)
	}
	var nft, iptables []*dump.Table
	for _, table := range s.Tables {
		if table.Dialect == dump.NFT {
			nft = append(nft, table)
		} else {
			iptables = append(iptables, table)
		}
	}
	load(t, n, func(out *bytes.Buffer) error {
		for _, table := range nft {
			fmt.Fprintf(out, "delete table %s %s\n", table.Family, table.Name)
		}
		return dump.WriteNFT(out, nft, dump.TextOptions{})
	}, "nft", "-f", "-")
	if len(iptables) > 0 {
		reloadIPTables(t, n, backend, iptables, s.IPSets)
	}
	file := filepath.Join(t.TempDir(), "flows")
	var flows bytes.Buffer
	if err := errors.Join(dump.WriteFlows(&flows, s.Flows, dump.TextOptions{}), os.WriteFile(file, flows.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	ofctl(t, n, "del-flows")
	ofctl(t, n, "add-flows", file)
}

func reloadIPTables(t *testing.T, n *lab.Node, backend string, tables []*dump.Table, sets []*dump.Set) {
	t.Helper()
	restore := func(write func(out *bytes.Buffer, f model.Family) error) {
		t.Helper()
		for f, tool := range map[model.Family]string{model.IPv4: backend, model.IPv6: "ip6" + strings.TrimPrefix(backend, "ip")} {
			load(t, n, func(out *bytes.Buffer) error { return write(out, f) }, tool+"-restore")
		}
	}
	restore(func(out *bytes.Buffer, f model.Family) error {
		for _, table := range tables {
			if table.IPFamily() == f {
				fmt.Fprintf(out, "*%s\nCOMMIT\n", table.Name)
			}
		}
		return nil
	})
	load(t, n, func(out *bytes.Buffer) error {
		out.WriteString("destroy\n")
		return dump.WriteIPSets(out, sets, dump.TextOptions{})
	}, "ipset", "restore")
	restore(func(out *bytes.Buffer, f model.Family) error {
		return dump.WriteIPTables(out, tables, f, dump.TextOptions{})
	})
}

// load gives a tool on a node its input.
func load(t *testing.T, n *lab.Node, write func(*bytes.Buffer) error, argv ...string) {
	t.Helper()
	var in bytes.Buffer
	if err := write(&in); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", append([]string{"netns", "exec", n.Namespace().Name()}, argv...)...)
	cmd.Stdin = strings.NewReader(in.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %v\n%s", n.Name(), argv, err, out[:min(len(out), 2000)])
	}
}
