package nftables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// The numbers of loadGrants.
const (
	webPods, dbPods  tables.Number = 0x80000001, 2
	friends, someNet tables.Number = 0xf0000003, 4
)

// loadGrants drops all packets without a grant. 10.1.0.5 and fd01::5 are friends, their networks from 8 on are someNet.
// Friends may reach the web pods by UDP 80, someNet all of their ports. All may reach the database by UDP 5432, and friends
// all of its ports.
func loadGrants(table *Table) {
	table.CreateSet(ipsets.Set{Name: "grants", Kind: model.Grants, Family: model.IPv6})
	table.CreateSet(ipsets.Set{Name: "any", Kind: model.AnyPortGrants, Family: model.IPv6})
	chain := tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
		rule(tables.Accept{}, "sentinel", proto(model.UDP), ports(sentinel, sentinel)),
		rule(tables.SetMark{Value: 0xabc, Mask: 0xfff}, "of another program"),
	}}
	for _, f := range model.Families() {
		lists, peers, nets := "lists-"+f.String(), "identities-"+f.String(), "nets-"+f.String()
		table.CreateNumberMap(lists, model.Addresses, f)
		table.CreateNumberMap(peers, model.Addresses, f)
		table.CreateNumberMap(nets, model.Networks, f)
		for _, m := range []string{peers, nets, ""} {
			for _, anyPort := range []bool{false, true} {
				g := tables.MatchGrant{Family: f, Pod: tables.Destination, Lists: lists, Peers: m, Grants: "grants", AnyPort: anyPort}
				if anyPort {
					g.Grants = "any"
				}
				chain.Rules = append(chain.Rules, rule(tables.Accept{}, "granted", g))
			}
		}
	}
	chain.Rules = append(chain.Rules,
		rule(tables.Drop{}, "mark kept", tables.MatchMark{Value: 0xabc, Mask: 0xfff}),
		rule(tables.Accept{}, "mark lost"))
	table.UpdateChain(chain)
	for _, a := range []string{"10.2.0.11", "fd02::11"} {
		table.SetNumber("lists-"+model.FamilyOf(addr(a)).String(), model.AddressMember(addr(a)), webPods)
	}
	for _, a := range []string{"10.2.0.12", "fd02::12"} {
		table.SetNumber("lists-"+model.FamilyOf(addr(a)).String(), model.AddressMember(addr(a)), dbPods)
	}
	for _, a := range []string{"10.1.0.5", "fd01::5"} {
		table.SetNumber("identities-"+model.FamilyOf(addr(a)).String(), model.AddressMember(addr(a)), friends)
	}
	for _, p := range membersOf("10.1.0.8/29", "fd01::8/125") {
		table.SetNumber("nets-"+p.Family().String(), p, someNet)
	}
	grant := func(set string, list, peers tables.Number, protocol model.Protocol, port uint16) {
		g := model.Grant{List: uint32(list), Peers: uint32(peers), Protocol: protocol, Port: port}
		table.AddMembers(set, []model.Member{g.Member()})
	}
	grant("grants", webPods, friends, model.UDP, 80)
	grant("any", webPods, someNet, 0, 0)
	grant("grants", dbPods, 0, model.UDP, 5432)
	grant("any", dbPods, friends, 0, 0)
}

// TestGrants: the kernel finds each kind of grants, and a packet without one keeps its mark. The kernel returns all as it
// was written, and nft lists it.
func TestGrants(t *testing.T) {
	p := newPath(t)
	table := p.router.open(t)
	loadGrants(table)
	apply(t, table)
	var cases []packetCase
	for from, to := range map[string]string{"10.1.0.": "10.2.0.", "fd01::": "fd02::"} {
		cases = append(cases,
			packetCase{model.UDP, from + "5", to + "11", 80, true},
			packetCase{model.UDP, from + "5", to + "11", 81, false},
			packetCase{model.TCP, from + "5", to + "11", 80, false},
			packetCase{model.UDP, from + "6", to + "11", 80, false},
			packetCase{model.UDP, from + "9", to + "11", 81, true},
			packetCase{model.UDP, from + "6", to + "12", 5432, true},
			packetCase{model.UDP, from + "6", to + "12", 5433, false},
			packetCase{model.UDP, from + "5", to + "12", 5433, true},
			packetCase{model.UDP, from + "9", to + "12", 5433, false},
			packetCase{model.UDP, from + "5", to + "13", 80, false},
		)
	}
	wantPackets(t, p, cases)

	text := p.router.list(t)
	for _, want := range []string{
		"10.1.0.5 : 0xf0000003", "10.1.0.8/29 : 0x00000004", "0x80000001 . 0xf0000003 . udp . 80", "0x00000002 . 0xf0000003",
		"meta mark set ip daddr map @lists-4 meta mark set ip saddr map @identities-4 meta mark set meta mark meta mark . meta mark . meta l4proto . th dport @grants counter",
		"meta mark set ip6 daddr map @lists-6 meta mark set 0x00000000 meta mark set meta mark meta mark . meta mark @any counter",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nft does not list %q:\n%s", want, text)
		}
	}
	again := p.router.open(t)
	loadGrants(again)
	wantSilent(t, again)

	// Other values, and a range instead of a prefix.
	table.SetNumber("lists-4", model.AddressMember(addr("10.2.0.11")), dbPods)
	table.RemoveNumber("nets-6", membersOf("fd01::8/125")[0])
	ranged := model.AddressMember(addr("fd01::7"))
	ranged.Last = addr("fd01::9")
	table.SetNumber("nets-6", ranged, someNet)
	apply(t, table)
	wantPackets(t, p, []packetCase{
		{model.UDP, "10.1.0.9", "10.2.0.11", 81, false},
		{model.UDP, "10.1.0.9", "10.2.0.11", 5432, true},
		{model.UDP, "fd01::9", "fd02::11", 81, true},
		{model.UDP, "fd01::a", "fd02::11", 81, false},
	})
	table.Invalidate()
	wantSilent(t, table)
	p.router.nft(t, "flush map inet felixlike lists-4\nadd element inet felixlike identities-4 { 10.1.0.6 : 0xf0000003 }")
	table.Invalidate()
	if r := apply(t, table); r.ElementsAdded != 2 || r.ElementsDeleted != 1 {
		t.Errorf("repair of foreign entries: %+v", r)
	}
}

// TestFaultyGrants: numbers, grants and matches on them that do not fit the maps are refused before anything is sent.
func TestFaultyGrants(t *testing.T) {
	for name, c := range map[string]struct {
		set    string
		change func(*Table)
	}{
		"port without protocol": {"grants", func(t *Table) {
			t.AddMembers("grants", []model.Member{model.Grant{List: 1, Port: 80}.Member()})
		}},
		"no port": {"grants", func(t *Table) {
			t.AddMembers("grants", []model.Member{model.Grant{List: 1, Protocol: model.TCP}.Member()})
		}},
		"port in a set for every port": {"any", func(t *Table) {
			t.AddMembers("any", []model.Member{model.Grant{List: 1, Protocol: model.TCP, Port: 80}.Member()})
		}},
		"an address is no grant": {"any", func(t *Table) { t.AddMembers("any", membersOf("fd00::1")) }},
		"no number":              {"lists-4", func(t *Table) { t.AddMembers("lists-4", membersOf("10.2.0.9")) }},
		"verdict": {"lists-4", func(t *Table) {
			t.SetVerdict("lists-4", addr("10.2.0.9"), tables.Accept{})
		}},
		"number in a set": {"other", func(t *Table) {
			t.CreateSet(ipsets.Set{Name: "other", Kind: model.Addresses, Family: model.IPv4})
			t.SetNumber("other", model.AddressMember(addr("10.2.0.9")), 1)
		}},
		"overlap": {"nets-4", func(t *Table) { t.SetNumber("nets-4", membersOf("10.1.0.0/24")[0], 9) }},
	} {
		t.Run(name, func(t *testing.T) {
			table := newNamespace(t).open(t)
			loadGrants(table)
			c.change(table)
			r, err := table.Apply(t.Context())
			if text := fmt.Sprint(err, r.Refused); err == nil && len(r.Refused) == 0 || !strings.Contains(text, c.set) {
				t.Errorf("set %s is not refused: %s", c.set, text)
			}
		})
	}
}
