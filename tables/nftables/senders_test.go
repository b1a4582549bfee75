package nftables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

func senderMember(p string, mac model.MAC) model.Member {
	return model.Member{Prefix: netip.MustParsePrefix(p), MAC: mac}
}

// loadSenders drops all packets but those of the senders in two sets.
func loadSenders(table *Table) {
	c := tables.Chain{Name: "senders", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: -450}}
	c.Rules = append(c.Rules, rule(tables.Accept{}, "sentinel", proto(model.UDP), ports(sentinel, sentinel)))
	for _, f := range model.Families() {
		set := ipsets.Set{Name: "senders-" + f.String(), Kind: model.Senders, Family: f}
		table.CreateSet(set)
		c.Rules = append(c.Rules, rule(tables.SetMarkAndReturn{Value: 1 << 27, Mask: 1 << 27}, "believed",
			tables.MatchInterface{Side: tables.Source, Name: "r1"}, tables.MatchSender{Family: f, Set: set.Name}))
	}
	for _, p := range []string{"10.0.0.0/8", "fd01::/16"} {
		c.Rules = append(c.Rules, rule(tables.Drop{}, "forged", prefix(tables.Source, p, false)))
	}
	table.UpdateChain(c)
}

// TestSenders: a packet needs the MAC address and an address of the prefix of one member. The kernel returns rules
// and members as predicted, so a restart writes nothing.
func TestSenders(t *testing.T) {
	p := newPath(t)
	table := p.router.open(t)
	loadSenders(table)
	mac := model.MAC(macOf(t, p))
	other := model.MAC{2, 0, 0, 0, 0, 9}
	members := map[string][]model.Member{
		"senders-4": {senderMember("10.1.0.0/24", mac), senderMember("10.1.1.0/25", mac), senderMember("10.1.2.0/24", other), senderMember("10.1.3.7/32", mac)},
		"senders-6": {senderMember("fd01::/120", mac), senderMember("fd01::200/120", other)},
	}
	for set, all := range members {
		table.AddMembers(set, all)
	}
	apply(t, table)
	wantSilent(t, table)
	wantSilent(t, p.router.open(t).adopting(members))
	wantPackets(t, p, []packetCase{
		{model.UDP, "10.1.0.5", "10.2.0.5", 80, true},
		{model.UDP, "10.1.1.127", "10.2.0.5", 80, true},
		{model.UDP, "10.1.1.128", "10.2.0.5", 80, false},
		{model.UDP, "10.1.2.5", "10.2.0.5", 80, false},
		{model.UDP, "10.1.3.7", "10.2.0.5", 80, true},
		{model.UDP, "10.1.3.8", "10.2.0.5", 80, false},
		{model.UDP, "fd01::5", "fd02::5", 80, true},
		{model.UDP, "fd01::205", "fd02::5", 80, false},
		{model.UDP, "fd01::305", "fd02::5", 80, false},
	})
	table.RemoveMembers("senders-4", []model.Member{senderMember("10.1.0.0/24", mac)})
	table.AddMembers("senders-4", []model.Member{senderMember("10.1.0.0/24", other), senderMember("10.1.3.8/32", mac)})
	apply(t, table)
	wantPackets(t, p, []packetCase{
		{model.UDP, "10.1.0.5", "10.2.0.5", 80, false},
		{model.UDP, "10.1.3.8", "10.2.0.5", 80, true},
	})
	if text := p.router.list(t); !strings.Contains(text, "ether saddr . ip saddr @senders-4") {
		t.Errorf("nft lists\n%s", text)
	}
}

// TestForeignSenderIsRemoved: a member that another program added does not stay.
func TestForeignSenderIsRemoved(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadSenders(table)
	table.AddMembers("senders-4", []model.Member{senderMember("10.1.0.0/24", model.MAC{2, 0, 0, 0, 0, 1})})
	apply(t, table)
	ns.nft(t, "add element inet felixlike senders-4 { 02:00:00:00:00:02 . 10.1.0.0/24 }\ndelete element inet felixlike senders-4 { 02:00:00:00:00:01 . 10.1.0.0/24 }")
	table.Invalidate()
	if r := apply(t, table); r.ElementsAdded != 1 || r.ElementsDeleted != 1 {
		t.Errorf("repair: %+v", r)
	}
	wantSilent(t, table)
}

// TestThousandSenders: one more peer costs one member, and no rule.
func TestThousandSenders(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadSenders(table)
	peer := func(n int) model.Member {
		return senderMember(fmt.Sprintf("10.%d.%d.0/24", n/256, n%256), model.MAC{2, 0, 0, 0, byte(n >> 8), byte(n)})
	}
	for n := range 1000 {
		table.AddMembers("senders-4", []model.Member{peer(n)})
	}
	first := apply(t, table)
	table.AddMembers("senders-4", []model.Member{peer(1000)})
	one := apply(t, table)
	if one.Messages != 1 || one.ElementsAdded != 1 || one.RulesAdded != 0 {
		t.Errorf("one more peer: %+v", one)
	}
	t.Logf("1,000 peers in %s, one more in %s", first.Duration, one.Duration)
	wantSilent(t, table)
}

// adopting gives a new driver of the same table the same desired state.
func (t *Table) adopting(members map[string][]model.Member) *Table {
	loadSenders(t)
	for set, all := range members {
		t.AddMembers(set, all)
	}
	return t
}

// macOf returns the MAC address of the sender.
func macOf(t *testing.T, p *path) []byte {
	t.Helper()
	text := strings.TrimSpace(p.sender.run(t, "cat", "/sys/class/net/eth0/address"))
	var mac model.MAC
	if err := mac.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return mac[:]
}
