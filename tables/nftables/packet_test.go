package nftables

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
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

// loadPolicy wants one chain with a rule for each kind of match, for what comes
// from the sender; what none of them accepts is dropped.
func loadPolicy(table *Table) {
	for f, list := range map[model.Family][]string{
		model.IPv4: {"10.1.1.1", "10.1.16.0/20", "10.1.32.0/25", "10.1.32.128/25", "10.1.99.9/32", "10.2.0.1", "10.2.0.2"},
		model.IPv6: {"fd01::1:1", "fd01::1000/116", "fd01::2000/121", "fd01::2080/121", "fd01::99/128", "fd02::1", "fd02::2"},
	} {
		a, n, ps := ipsets.Name("a", f), ipsets.Name("n", f), ipsets.Name("p", f)
		table.CreateSet(ipsets.Set{Name: a, Kind: model.Addresses, Family: f})
		table.CreateSet(ipsets.Set{Name: n, Kind: model.Networks, Family: f})
		table.CreateSet(ipsets.Set{Name: ps, Kind: model.AddressPorts, Family: f})
		table.AddMembers(a, membersOf(list[0]))
		table.AddMembers(n, membersOf(list[1:5]...))
		table.AddMembers(ps, []model.Member{triple(list[5], model.TCP, 8080), triple(list[6], model.SCTP, 9)})
	}
	var rules []tables.Rule
	rules = append(rules,
		rule(tables.Accept{}, "sentinel", proto(model.UDP), ports(sentinel, sentinel)),
		rule(tables.SetMark{Value: 0x20, Mask: 0xf0}, "", proto(model.UDP), ports(500, 500)),
		rule(tables.Accept{}, "", tables.MatchMark{Value: 0x20, Mask: 0xf0}),
	)
	for _, f := range model.Families() {
		rules = append(rules,
			rule(tables.Accept{}, "", srcSet(f, ipsets.Name("a", f)), proto(model.UDP), ports(1000, 2000)),
			rule(tables.Accept{}, "", srcSet(f, ipsets.Name("n", f)), proto(model.TCP), ports(80, 80)),
			rule(tables.Accept{}, "", tables.MatchPortSet{Family: f, Set: ipsets.Name("p", f)}),
		)
	}
	table.UpdateChain(tables.Chain{Name: "policy", Rules: append(rules, rule(tables.Drop{}, "isolated"))})
	table.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
		rule(tables.Goto{Chain: "policy"}, "", tables.MatchInterface{Side: tables.Source, Name: "r1"}, tables.MatchInterface{Side: tables.Destination, Name: "r1", Negated: true}),
	}})
}

func TestPackets(t *testing.T) {
	p := newPath(t)
	table := p.router.open(t)
	loadPolicy(table)
	apply(t, table)

	wantPackets(t, p, []packetCase{
		{model.UDP, "10.1.1.1", "10.2.0.9", 999, false},
		{model.UDP, "10.1.1.1", "10.2.0.9", 1000, true},
		{model.UDP, "10.1.1.1", "10.2.0.9", 2000, true},
		{model.UDP, "10.1.1.1", "10.2.0.9", 2001, false},
		{model.TCP, "10.1.1.1", "10.2.0.9", 1500, false},
		{model.UDP, "10.1.1.2", "10.2.0.9", 1500, false},
		{model.UDP, "10.1.1.2", "10.2.0.9", 500, true},
		{model.TCP, "10.1.15.255", "10.2.0.9", 80, false},
		{model.TCP, "10.1.16.0", "10.2.0.9", 80, true},
		{model.TCP, "10.1.31.255", "10.2.0.9", 80, true},
		{model.TCP, "10.1.32.0", "10.2.0.9", 80, true},
		{model.TCP, "10.1.32.127", "10.2.0.9", 80, true},
		{model.TCP, "10.1.32.128", "10.2.0.9", 80, true},
		{model.TCP, "10.1.33.0", "10.2.0.9", 80, false},
		{model.TCP, "10.1.99.9", "10.2.0.9", 80, true},
		{model.TCP, "10.1.99.10", "10.2.0.9", 80, false},
		{model.TCP, "10.1.32.0", "10.2.0.9", 81, false},
		{model.SCTP, "10.1.32.0", "10.2.0.9", 80, false},
		{model.TCP, "10.1.1.9", "10.2.0.1", 8080, true},
		{model.UDP, "10.1.1.9", "10.2.0.1", 8080, false},
		{model.TCP, "10.1.1.9", "10.2.0.1", 8081, false},
		{model.TCP, "10.1.1.9", "10.2.0.3", 8080, false},
		{model.SCTP, "10.1.1.9", "10.2.0.2", 9, true},
		{model.SCTP, "10.1.1.9", "10.2.0.1", 9, false},
		{model.UDP, "fd01::1:1", "fd02::9", 999, false},
		{model.UDP, "fd01::1:1", "fd02::9", 1000, true},
		{model.UDP, "fd01::1:1", "fd02::9", 2000, true},
		{model.UDP, "fd01::1:2", "fd02::9", 1500, false},
		{model.TCP, "fd01::fff", "fd02::9", 80, false},
		{model.TCP, "fd01::1000", "fd02::9", 80, true},
		{model.TCP, "fd01::1fff", "fd02::9", 80, true},
		{model.TCP, "fd01::207f", "fd02::9", 80, true},
		{model.TCP, "fd01::2080", "fd02::9", 80, true},
		{model.TCP, "fd01::2100", "fd02::9", 80, false},
		{model.TCP, "fd01::99", "fd02::9", 80, true},
		{model.TCP, "fd01::9a", "fd02::9", 80, false},
		{model.TCP, "fd01::3", "fd02::1", 8080, true},
		{model.UDP, "fd01::3", "fd02::1", 8080, false},
		{model.TCP, "fd01::3", "fd02::3", 8080, false},
		{model.SCTP, "fd01::3", "fd02::2", 9, true},
	})

	// Neighbours in the interval set change.
	table.RemoveMembers("n-4", membersOf("10.1.32.0/25", "10.1.99.9/32"))
	table.AddMembers("n-4", membersOf("10.1.32.64/26", "10.1.33.0/24"))
	apply(t, table)
	wantPackets(t, p, []packetCase{
		{model.TCP, "10.1.31.255", "10.2.0.9", 80, true},
		{model.TCP, "10.1.32.0", "10.2.0.9", 80, false},
		{model.TCP, "10.1.32.63", "10.2.0.9", 80, false},
		{model.TCP, "10.1.32.64", "10.2.0.9", 80, true},
		{model.TCP, "10.1.32.128", "10.2.0.9", 80, true},
		{model.TCP, "10.1.33.255", "10.2.0.9", 80, true},
		{model.TCP, "10.1.34.0", "10.2.0.9", 80, false},
		{model.TCP, "10.1.99.9", "10.2.0.9", 80, false},
	})
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

// While the verdict of an address changes, packets to it are judged by the old
// or by the new one: never by what stands behind the dispatch.
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
	fd := p.socket(t, socketKey{source: addr("10.1.0.2"), protocol: model.UDP, family: model.IPv4})
	stop, sent := make(chan struct{}), 0
	var sender sync.WaitGroup
	sender.Go(func() {
		packet := []byte{156, 64, 0, 1, 0, 8, 0, 0}
		for {
			select {
			case <-stop:
				return
			default:
				if unix.Sendto(fd, packet, 0, sockaddr(addr("10.2.0.2"))) == nil {
					sent++
				}
			}
		}
	})
	for i := range 2000 {
		table.SetVerdict("to-4", addr("10.2.0.2"), verdicts[(i+1)%2])
		if r := apply(t, table); r.Messages != 2 {
			t.Fatalf("%+v", r)
		}
	}
	close(stop)
	sender.Wait()
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
