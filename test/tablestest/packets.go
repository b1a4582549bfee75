package tablestest

import (
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// PacketCase is a packet and whether it has to arrive.
type PacketCase struct {
	Protocol model.Protocol
	Src, Dst string
	Port     uint16
	Want     bool
}

// Packet returns the case of a packet.
func Packet(p model.Protocol, src, dst string, port uint16, want bool) PacketCase {
	return PacketCase{p, src, dst, port, want}
}

// Want sends the packets and checks which of them arrive.
func (p *Path) Want(t testing.TB, cases []PacketCase) {
	t.Helper()
	for _, c := range cases {
		if got := p.Passes(t, c.Protocol, netip.MustParseAddr(c.Src), netip.MustParseAddr(c.Dst), c.Port); got != c.Want {
			t.Errorf("%s from %s to %s port %d: passes %v, want %v", c.Protocol, c.Src, c.Dst, c.Port, got, c.Want)
		}
	}
}

// Chains is the part of a table driver that LoadPolicy uses.
type Chains interface {
	UpdateChain(tables.Chain)
}

// LoadPolicy adds one chain with a rule for each kind of match, for packets
// from the sender of a Path. It drops packets that no rule accepts.
func LoadPolicy(chains Chains, sets ipsets.Sets) {
	for f, list := range map[model.Family][]string{
		model.IPv4: {"10.1.1.1", "10.1.16.0/20", "10.1.32.0/25", "10.1.32.128/25", "10.1.99.9/32", "10.2.0.1", "10.2.0.2"},
		model.IPv6: {"fd01::1:1", "fd01::1000/116", "fd01::2000/121", "fd01::2080/121", "fd01::99/128", "fd02::1", "fd02::2"},
	} {
		a, n, ps := ipsets.Name("a", f), ipsets.Name("n", f), ipsets.Name("p", f)
		sets.CreateSet(ipsets.Set{Name: a, Kind: model.Addresses, Family: f})
		sets.CreateSet(ipsets.Set{Name: n, Kind: model.Networks, Family: f})
		sets.CreateSet(ipsets.Set{Name: ps, Kind: model.AddressPorts, Family: f})
		sets.AddMembers(a, Members(list[0]))
		sets.AddMembers(n, Members(list[1:5]...))
		sets.AddMembers(ps, []model.Member{Triple(list[5], model.TCP, 8080), Triple(list[6], model.SCTP, 9)})
	}
	var rules []tables.Rule
	rules = append(rules,
		Rule(tables.Accept{}, "sentinel", Protocol(model.UDP), Ports(Sentinel, Sentinel)),
		Rule(tables.SetMark{Value: 0x20, Mask: 0xf0}, "", Protocol(model.UDP), Ports(500, 500)),
		Rule(tables.Accept{}, "", tables.MatchMark{Value: 0x20, Mask: 0xf0}),
	)
	for _, f := range model.Families() {
		rules = append(rules,
			Rule(tables.Accept{}, "", SourceSet(f, ipsets.Name("a", f)), Protocol(model.UDP), Ports(1000, 2000)),
			Rule(tables.Accept{}, "", SourceSet(f, ipsets.Name("n", f)), Protocol(model.TCP), Ports(80, 80)),
			Rule(tables.Accept{}, "", tables.MatchPortSet{Family: f, Set: ipsets.Name("p", f)}),
		)
	}
	chains.UpdateChain(tables.Chain{Name: "policy", Rules: append(rules, Rule(tables.Drop{}, "isolated"))})
	chains.UpdateChain(tables.Chain{Name: "forward", Hook: &Forward, Rules: []tables.Rule{
		Rule(tables.Goto{Chain: "policy"}, "", Interface(tables.Source, "r1", false), Interface(tables.Destination, "r1", true)),
	}})
}

// ChangePolicySets changes neighbours in the set of prefixes.
func ChangePolicySets(sets ipsets.Sets) {
	sets.RemoveMembers("n-4", Members("10.1.32.0/25", "10.1.99.9/32"))
	sets.AddMembers("n-4", Members("10.1.32.64/26", "10.1.33.0/24"))
}

// Members returns members of sets, addresses and prefixes.
func Members(list ...string) []model.Member {
	var out []model.Member
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, model.Member{Prefix: p})
		} else {
			out = append(out, model.AddressMember(netip.MustParseAddr(s)))
		}
	}
	return out
}

// Triple returns a member of a set of address, protocol and port.
func Triple(a string, p model.Protocol, port uint16) model.Member {
	m := model.AddressMember(netip.MustParseAddr(a))
	m.Protocol, m.Port = p, port
	return m
}

// PolicyPackets are packets through the rules of LoadPolicy.
func PolicyPackets() []PacketCase {
	return []PacketCase{
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
	}
}

// ChangedPackets are packets after ChangePolicySets.
func ChangedPackets() []PacketCase {
	return []PacketCase{
		{model.TCP, "10.1.31.255", "10.2.0.9", 80, true},
		{model.TCP, "10.1.32.0", "10.2.0.9", 80, false},
		{model.TCP, "10.1.32.63", "10.2.0.9", 80, false},
		{model.TCP, "10.1.32.64", "10.2.0.9", 80, true},
		{model.TCP, "10.1.32.128", "10.2.0.9", 80, true},
		{model.TCP, "10.1.33.255", "10.2.0.9", 80, true},
		{model.TCP, "10.1.34.0", "10.2.0.9", 80, false},
		{model.TCP, "10.1.99.9", "10.2.0.9", 80, false},
	}
}
