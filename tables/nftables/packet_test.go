package nftables

import (
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

func wantPackets(t *testing.T, p *path, cases []packetCase) {
	t.Helper()
	for _, c := range cases {
		if got := p.passes(t, c.protocol, addr(c.src), addr(c.dst), c.port); got != c.want {
			t.Errorf("%s from %s to %s port %d: passes %v, want %v", c.protocol, c.src, c.dst, c.port, got, c.want)
		}
	}
}

type packetCase struct {
	protocol model.Protocol
	src, dst string
	port     uint16
	want     bool
}

func TestPackets(t *testing.T) {
	p := newPath(t)
	table := p.router.open(t)
	tablestest.LoadPolicy(table, table)
	apply(t, table)
	p.Want(t, tablestest.PolicyPackets())
	tablestest.ChangePolicySets(table)
	apply(t, table)
	p.Want(t, tablestest.ChangedPackets())
}

func TestVerdictMapPackets(t *testing.T) {
	p := newPath(t)
	table := p.router.open(t)
	loadDispatch(table)
	// Jump comes back to the drop behind the dispatch, goto leaves the base chain.
	for _, f := range []string{"10.2.0.", "fd02::"} {
		table.SetVerdict(mapOf(f), addr(f+"11"), tables.Accept{})
		table.SetVerdict(mapOf(f), addr(f+"12"), tables.Drop{})
		table.SetVerdict(mapOf(f), addr(f+"13"), tables.Jump{Chain: "web"})
		table.SetVerdict(mapOf(f), addr(f+"14"), tables.Goto{Chain: "web"})
	}
	apply(t, table)
	var cases []packetCase
	for from, to := range map[string]string{"10.1.0.5": "10.2.0.", "fd01::5": "fd02::"} {
		cases = append(cases,
			packetCase{model.UDP, from, to + "11", 81, true},
			packetCase{model.UDP, from, to + "12", 80, false},
			packetCase{model.UDP, from, to + "13", 80, true},
			packetCase{model.UDP, from, to + "13", 81, false},
			packetCase{model.UDP, from, to + "14", 80, true},
			packetCase{model.UDP, from, to + "14", 81, true},
			packetCase{model.UDP, from, to + "15", 80, false},
		)
	}
	wantPackets(t, p, cases)

	table.SetVerdict("to-4", addr("10.2.0.11"), tables.Jump{Chain: "web"})
	table.SetVerdict("to-6", addr("fd02::15"), tables.Accept{})
	table.RemoveVerdict("to-4", addr("10.2.0.14"))
	if r := apply(t, table); r.ElementsAdded != 2 || r.ElementsDeleted != 2 || r.Messages != 4-1 {
		t.Errorf("%+v", r)
	}
	wantPackets(t, p, []packetCase{
		{model.UDP, "10.1.0.5", "10.2.0.11", 81, false},
		{model.UDP, "10.1.0.5", "10.2.0.11", 80, true},
		{model.UDP, "10.1.0.5", "10.2.0.14", 80, false},
		{model.UDP, "fd01::5", "fd02::15", 80, true},
	})
}

// TestVerdictChangeIsAtomic: while the verdict of an address changes, packets to it get the old or the new
// one, and never reach the rules behind the dispatch.
func TestVerdictChangeIsAtomic(t *testing.T) {
	p := newPath(t)
	table := p.router.open(t)
	loadDispatch(table)
	verdicts := []tables.Action{tables.Accept{}, tables.Goto{Chain: "all"}}
	table.SetVerdict("to-4", addr("10.2.0.2"), verdicts[0])
	apply(t, table)
	if !p.passes(t, model.UDP, addr("10.1.0.2"), addr("10.2.0.2"), 1) {
		t.Fatal("the way is not open")
	}
	stop := p.Flood(t, addr("10.1.0.2"), addr("10.2.0.2"), 1)
	for i := range 2000 {
		table.SetVerdict("to-4", addr("10.2.0.2"), verdicts[(i+1)%2])
		if r := apply(t, table); r.Messages != 2 {
			t.Fatalf("%+v", r)
		}
	}
	sent, _ := stop()
	s, err := table.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	forward := s.Chain("forward").Rules
	through, missed := forward[1].Packets, forward[len(forward)-1].Packets
	t.Logf("%d packets sent, %d through the map", sent, through)
	if missed != 0 || through == 0 {
		t.Errorf("%d packets found no entry, %d did", missed, through)
	}
}

func loadDispatch(table *Table) {
	for _, f := range model.Families() {
		table.CreateMap("to-"+f.String(), f)
	}
	table.UpdateChain(tables.Chain{Name: "web", Rules: []tables.Rule{rule(tables.Accept{}, "", proto(model.UDP), ports(80, 80))}})
	table.UpdateChain(tables.Chain{Name: "all", Rules: []tables.Rule{rule(tables.Accept{}, "")}})
	table.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
		rule(tables.Accept{}, "sentinel", proto(model.UDP), ports(sentinel, sentinel)),
		rule(tables.Dispatch{Family: model.IPv4, Side: tables.Destination, Map: "to-4"}, ""),
		rule(tables.Dispatch{Family: model.IPv6, Side: tables.Destination, Map: "to-6"}, ""),
		rule(tables.Drop{}, "icmp errors aside", proto(model.UDP)),
	}})
}

func mapOf(first string) string {
	if first == "fd02::" {
		return "to-6"
	}
	return "to-4"
}
