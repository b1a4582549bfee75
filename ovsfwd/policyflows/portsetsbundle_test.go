package policyflows

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/ovstest"
)

// bundles counts the bundles that go to a switch.
type bundles struct {
	*openflow.Conn
	sent int
}

func (b *bundles) Bundle(ctx context.Context, mods iter.Seq2[openflow.FlowMod, error]) error {
	b.sent++
	return b.Conn.Bundle(ctx, mods)
}

// TestBitsChangeInOneBundle has more crowded sets than bits, in lanes. When a set goes, its bit is given to another set, and rules
// come and go: one bundle has all of it, also if another agent finds the flows of the first. In two, a packet could have the bit of one set while the rules
// of another have it.
func TestBitsChangeInOneBundle(t *testing.T) {
	b := ovstest.NewBridge(t)
	const sets, each = 18, 250 // more than a lane holds
	start := func() (*Store, *Programmer, *bundles) {
		conn, err := openflow.Dial(b.Context(), b.Management())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		sw := &bundles{Conn: conn}
		table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
		table.Connect(sw)
		s := New(Options{Flows: table})
		s.SetFamilies([]model.Family{model.IPv4})
		crowd(s)
		s.UpdateGroup("a1", members("10.0.0.1"), nil)
		return s, NewProgrammer(s, table), sw
	}
	policies := func(s *Store, gone ...int) {
		var all []model.PolicyID
		for n := range uint16(sets) {
			name := fmt.Sprintf("p%d", n)
			if slices.Contains(gone, int(n)) {
				s.RemovePolicy(networkPolicy(name))
				continue
			}
			p := setsOf(name, "a1", nil, []model.PortRange{tcp(1000+n, 1000+n), tcp(2000+10*n, 2003+10*n)})
			p.Egress = slices.Repeat(p.Egress, each)
			s.SetPolicy(p)
			all = append(all, p.ID)
		}
		s.SetPod(testPod(3, model.Applied{}, apply(all...)))
		s.Complete()
	}
	bits := func(s *Store) map[uint32]string {
		all := map[uint32]string{}
		for _, set := range s.portSets[ruleEgress].bits {
			all[set.bit] = set.key
		}
		return all
	}
	changed := func(before, after map[uint32]string) (n int) {
		for bit, key := range before {
			if after[bit] != "" && after[bit] != key {
				n++
			}
		}
		return n
	}
	check := func(what string, p *Programmer, sw *bundles, gone ...int) {
		t.Helper()
		sw.sent = 0
		if got, err := p.Apply(b.Context()); err != nil || len(got.Refused) > 0 {
			t.Fatalf("%s: %v, refused %v", what, err, got.Refused)
		}
		if sw.sent != 1 {
			t.Errorf("%s: %d bundles", what, sw.sent)
		}
		for n := range sets {
			for _, port := range []int{1000 + n, 2003 + 10*n, 2004 + 10*n} {
				out := b.Run("ovs-appctl", "-t", b.Daemons.VSwitchdControl(), "ofproto/trace", "br-int",
					fmt.Sprintf("in_port=3,tcp,nw_src=10.10.1.3,nw_dst=10.0.0.1,tp_dst=%d", port))
				want := !slices.Contains(gone, n) && port != 2004+10*n
				if got := strings.Contains(out, "->reg5"); got != want {
					t.Errorf("%s: port %d: allowed %t:\n%s", what, port, got, out)
				}
			}
		}
	}
	s, p, sw := start()
	for _, f := range []string{"table=0,priority=0,actions=goto_table:50", "table=50,priority=0,actions=drop"} {
		b.Ofctl("add-flow", f)
	}
	policies(s)
	check("load", p, sw)
	lanes := map[uint16]bool{}
	for _, r := range s.rules {
		lanes[r.priority] = true
	}
	if len(lanes) < 2 {
		t.Fatalf("one lane")
	}
	before := bits(s)
	moved := -1
	for n := range sets {
		policies(s, n)
		if changed(before, bits(s)) > 0 {
			moved = n
			break
		}
		policies(s)
	}
	if moved < 0 {
		t.Fatal("no bit has changed its set")
	}
	check("a set goes", p, sw, moved)
	before = bits(s)
	restarted, p, sw := start()
	policies(restarted, (moved+5)%sets, (moved+9)%sets)
	if changed(before, bits(restarted)) == 0 {
		t.Error("the restarted agent gives no bit to another set")
	}
	check("restart", p, sw, (moved+5)%sets, (moved+9)%sets)
}
