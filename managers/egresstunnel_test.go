package managers

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// TestEgressThroughTunnel: pods of this node leave by the tunnel to the node with their address, pods of peers come by it where
// this node has the address, and nothing of it stays without the Egresses. Without a tunnel to the peer nothing leads there.
func TestEgressThroughTunnel(t *testing.T) {
	address := netip.MustParseAddr
	egress := func(node, a string, pods ...string) model.EgressAddress {
		e := model.EgressAddress{Object: model.ObjectRef{Kind: "Egress", Name: node + a}, Node: node}
		if a != "" {
			e.Address = address(a)
		}
		for _, p := range pods {
			e.Pods = append(e.Pods, address(p))
		}
		return e
	}
	egresses := model.EgressesUpdate{Egresses: []model.EgressAddress{
		egress("n2", "192.168.50.100", "10.10.1.7", "10.10.3.7"),
		egress("n3", "192.168.50.101", "10.10.1.7", "10.10.1.8"), // the first one has pod 7
		egress("n1", "192.168.50.102", "10.10.1.9", "10.10.2.9"),
		egress("n3", "fd00:50::100", "fd00:10:0:1::7"),
		egress("", "", "10.10.1.10"),
	}}
	const (
		seven = "in_port=2,dl_dst=aa:bb:cc:dd:ee:fe,nw_src=10.10.1.7 "
		eight = "in_port=2,dl_dst=aa:bb:cc:dd:ee:fe,nw_src=10.10.1.8 "
		six   = "in_port=2,dl_dst=aa:bb:cc:dd:ee:fe,ipv6_src=fd00:10:0:1::7 "
		back  = "tun_src=192.168.50.2,in_port=1,nw_dst=10.10.1.7 "
		nine  = "table=70,priority=152,ip,reg0=0x80000/0x80000,nw_src=10.10.2.9 "
	)
	for _, c := range []struct {
		traffic model.TrafficMode
		mode    pipeline.Mode
		n2, n3  []string
	}{
		{model.Encap, pipeline.Steer, []string{seven, back}, []string{eight, six}},
		{model.Encap, pipeline.Full, []string{seven, back, nine}, []string{eight, six}},
		{model.Hybrid, pipeline.Full, nil, []string{eight, six}},
		{model.NoEncap, pipeline.Full, nil, nil},
	} {
		t.Run(c.traffic.String()+" "+c.mode.String(), func(t *testing.T) {
			flows := flowGroups{}
			m := NewTunnelManager("n1", c.traffic, pipeline.Node{GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6), Mode: c.mode}, flows)
			give(m, clusterOfThree()...)
			before := map[string]string{"n2": flows["peer n2"], "n3": flows["peer n3"]}
			give(m, egresses)
			for name, wanted := range map[string][]string{"n2": c.n2, "n3": c.n3} {
				text := flows["peer "+name]
				for _, flow := range []string{seven, eight, six, back, nine} {
					want := false
					for _, w := range wanted {
						want = want || w == flow
					}
					if strings.Contains(text, flow) != want {
						t.Errorf("peer %s: flow %q %v, want %v\n%s", name, flow, !want, want, text)
					}
				}
			}
			for _, other := range []string{"10.10.1.9", "10.10.3.7", "10.10.1.10"} {
				if strings.Contains(flows["peer n2"]+flows["peer n3"], other+" ") {
					t.Errorf("flows for %s", other)
				}
			}
			for _, p := range []string{"nw_src=10.10.1.0/24", "nw_src=10.10.4.0/24", "nw_src=192.168.60.3", "ipv6_src=fd00:10:0:2::/64"} {
				if !strings.Contains(flows["egress"], "table=10,priority=195") || !strings.Contains(flows["egress"], "in_port=1,"+p) {
					t.Errorf("a source %s would be taken for one outside:\n%s", p, flows["egress"])
				}
			}
			give(m, model.NodeUpdate{Node: routedNode("n5", 5, "192.168.60.5")})
			if !strings.Contains(flows["egress"], "10.10.5.0/24") {
				t.Error("a new node's pods would be taken for sources outside")
			}
			give(m, model.NodeRemove{Name: "n5"}, model.EgressesUpdate{})
			if flows["egress"] != "" || flows["peer n2"] != before["n2"] || flows["peer n3"] != before["n3"] {
				t.Errorf("flows are left:\n%s", flows["egress"])
			}
		})
	}
}
