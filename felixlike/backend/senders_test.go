package backend

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/tablestest"
)

type noHops struct{}

func (noHops) SetPeers([]netip.Addr) {}

// TestSendersOverRestart: a restarted agent leaves the table as it is until it knows the senders, and then writes
// nothing. An agent with a tunnel to all nodes removes it.
func TestSendersOverRestart(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	node := func(name, address, pods string) model.Update {
		return model.NodeUpdate{Node: &model.Node{
			Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)},
		}}
	}
	nodes := []model.Update{
		node("n1", "192.168.50.1", "10.10.0.0/24"), node("n2", "192.168.50.2", "10.10.1.0/24"),
		model.HostAddressesUpdate{Subnets: []netip.Prefix{netip.MustParsePrefix("192.168.50.1/24")}},
	}
	n2 := netip.MustParseAddr("192.168.50.2")
	hops := model.HopsUpdate{Hops: []model.Hop{{Address: n2, Interface: "eth0", Neighbour: n2, MAC: model.MAC{2, 0, 0, 0, 0, 2}}}}
	stage := func(c Config) Stage {
		s, _ := Senders(c, noHops{})
		return s
	}
	list := func() string { return ns.Run(t, "nft", "-s", "list", "ruleset") }
	c := Config{Node: "n1", TrafficMode: model.Hybrid, NetNS: ns.FD}
	run(t, stage(c), append(nodes, hops)...)
	programmed := list()
	if !strings.Contains(programmed, "02:00:00:00:00:02 . 10.10.1.0/24") {
		t.Fatalf("programmed:\n%s", programmed)
	}
	restarted := stage(c)
	if did := run(t, restarted, nodes...); did.Writes != 0 || list() != programmed {
		t.Errorf("before the senders are known: %d writes\n%s", did.Writes, list())
	}
	if did := run(t, restarted, hops); did.Writes != 0 || list() != programmed {
		t.Errorf("a restart: %d writes\n%s", did.Writes, list())
	}
	if c.TrafficMode = model.Encap; run(t, stage(c)).Writes != 1 || list() != "" {
		t.Errorf("left in mode encap:\n%s", list())
	}
	if did := run(t, stage(c)); did.Writes != 0 {
		t.Errorf("%d writes without a table", did.Writes)
	}
}
