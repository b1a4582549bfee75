package managers

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// TestTranslationFollowsTheNextHop: translated packets leave only to a known next hop by the uplink's bridge, else status says why.
// Pods of this node with an Egress are left to the host.
func TestTranslationFollowsTheNextHop(t *testing.T) {
	flows := flowGroups{}
	m := NewForwardingManager("n1", pipeline.Node{
		GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6), Userspace: true, Mode: pipeline.Full,
		SNAT: &pipeline.SNAT{Uplink: 65000, Host: 65001, Bridge: "br-phy", First: 10000, Last: 20000},
	}, flows)
	node := &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}
	check := func(when, problem string, wanted, unwanted []string) {
		t.Helper()
		m.CompleteDeferredWork()
		got := ""
		for _, p := range m.Problems() {
			got += p.Reason
		}
		if (problem == "") != (got == "") || !strings.Contains(got, problem) {
			t.Errorf("%s: problem %q, want %q", when, got, problem)
		}
		for _, text := range wanted {
			if !strings.Contains(flows["base"], text) {
				t.Errorf("%s: no flow %s", when, text)
			}
		}
		for _, text := range unwanted {
			if strings.Contains(flows["base"], text) {
				t.Errorf("%s: a flow %s", when, text)
			}
		}
	}
	const leaves, chosen = "set_field:02:00:00:00:00:09->eth_dst,dec_ttl,output:65000", "table=70,priority=190"
	m.OnUpdate(model.NodeUpdate{Node: node})
	check("without an address", "no IPv4 InternalIP", nil, []string{"table=111"})
	addressed := *node
	addressed.Addresses = []netip.Addr{netip.MustParseAddr("192.168.77.100")}
	m.OnUpdate(model.NodeUpdate{Node: &addressed})
	check("without a next hop", "there is no default route", []string{chosen, "nat(src=192.168.77.100:10000-20000)"}, []string{"dec_ttl,output:65000"})
	hop := model.Hop{Address: model.Outside(), Interface: "eth1", InterfaceMAC: model.MAC{2, 0, 0, 0, 0, 1}, MAC: model.MAC{2, 0, 0, 0, 0, 9}}
	m.OnUpdate(model.HopsUpdate{Hops: []model.Hop{hop}})
	check("by another interface", "by interface eth1, not by the uplink", []string{chosen}, []string{leaves})
	hop.Interface = "br-phy"
	m.OnUpdate(model.HopsUpdate{Hops: []model.Hop{hop}})
	check("by the uplink", "", []string{chosen, leaves, "set_field:02:00:00:00:00:01->eth_src"}, []string{"nw_src=10.10.0.7"})
	m.OnUpdate(model.EgressesUpdate{Egresses: []model.EgressAddress{
		{Node: "n2", Pods: []netip.Addr{netip.MustParseAddr("10.10.0.7"), netip.MustParseAddr("10.10.1.7"), netip.MustParseAddr("fd00:10::7")}},
	}})
	check("with an Egress", "", []string{leaves, "table=70,priority=192,ip,reg0=0x2/0xffff,nw_src=10.10.0.7 "}, []string{"nw_src=10.10.1.7", "fd00:10::7"})
	m.OnUpdate(model.HopsUpdate{})
	check("without a route", "there is no default route", []string{chosen}, []string{leaves})
}
