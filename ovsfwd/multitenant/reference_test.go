package multitenant

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/ovstest"
)

// owner identifies the flows of tests.
const owner = 1

// world is a node with all that its flows depend on.
type world struct {
	node     Node
	pods     []tenantPod
	peers    []*model.Node
	services []tenantService
	// global are the addresses of the peers' global pods.
	global []netip.Addr
}

type tenantPod struct {
	Tenant
	*model.Attachment
}

type tenantService struct {
	Tenant
	Service
}

func (w world) flows() []openflow.Flow {
	flows := Base(w.node)
	var tenants []Tenant
	for _, p := range w.pods {
		flows, tenants = append(flows, Endpoint(p.Attachment, p.Tenant)...), append(tenants, p.Tenant)
	}
	for _, p := range w.peers {
		flows = append(append(flows, Peer(w.node, p, w.global...)...), Ends(p)...)
	}
	for _, s := range w.services {
		flows = append(flows, ServiceFlows(w.node, s.Service, s.Tenant)...)
	}
	return append(flows, Tenants(tenants...)...)
}

func podOf(t Tenant, port uint32, address string) tenantPod {
	a := netip.MustParseAddr(address)
	ip := a.As4()
	return tenantPod{t, &model.Attachment{OFPort: port, MAC: net.HardwareAddr{0x0a, 0x58, ip[0], ip[1], ip[2], ip[3]}, Addresses: []netip.Addr{a}}}
}

func nodeOf(name, address, prefix string) *model.Node {
	return &model.Node{Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(prefix)}}
}

func own(n *model.Node) Node {
	return Node{
		GatewayPort: 2, TunnelPort: 1, Gateway: n.PodCIDRs[0].Addr().Next(), Addresses: n.Addresses, PodPrefix: n.PodCIDRs[0],
		GatewayMAC: ovsdb.GatewayMAC(n.Name), ClusterPrefix: netip.MustParsePrefix("10.128.0.0/14"), ServicePrefixes: []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")},
	}
}

// reference returns the two nodes of the reference.
func reference() (first, second world) {
	dev, other := Tenant{Number: 0xbe3127}, Tenant{Number: 0xfa9a3}
	node1, node2 := nodeOf("node1", "172.22.122.8", "10.131.0.0/23"), nodeOf("node2", "172.22.122.9", "10.128.2.0/23")
	first = world{
		node: own(node1), peers: []*model.Node{node2},
		pods: []tenantPod{podOf(dev, 96, "10.131.1.152"), podOf(other, 17, "10.131.1.73")},
		services: []tenantService{{dev, Service{
			Address: netip.MustParseAddr("172.30.162.172"), Ports: []ServicePort{{model.TCP, 8080}},
		}}},
	}
	return first, world{node: own(node2), peers: []*model.Node{node1}, pods: []tenantPod{podOf(dev, 50, "10.128.2.128")}}
}

// TestReference installs the flows of both nodes of the reference on a switch, reads them back, and holds them against its rows. All
// rows are installed.
func TestReference(t *testing.T) {
	first, second := reference()
	compared := map[string]bool{}
	scenarios := []string{
		"OSH-3.1-SAMENODE", "OSH-3.2-SENDER", "OSH-3.3-EXTERNAL", "OSH-3.4-INBOUND", "OSH-3.6-GLOBALVNID", "OSH-3.7-SERVICE", // of the first node
		"OSH-3.2-RECEIVER",
	}
	for _, test := range []struct {
		name      string
		world     world
		scenarios []string
	}{
		{"first node", first, scenarios[:6]},
		{"second node", second, []string{"OSH-3.2-RECEIVER", "OSH-3.6-GLOBALVNID"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := ovstest.NewBridge(t)
			b.Install(owner, 1, test.world.flows())
			rows := ovstest.Reference(t, test.scenarios...)
			for _, row := range rows {
				compared[row.ID] = true
			}
			ovstest.Comparison{Extra: ovstest.Elsewhere(t, whyExtra, scenarios...)}.Check(t, b.Installed(), rows)
		})
	}
	if len(compared) != 33 {
		t.Errorf("compared %d rows", len(compared))
	}
}

// whyExtra explains the flows that the reference does not have. The first reason that fits counts.
func whyExtra(f *flowtext.Flow) string {
	has := func(fields ...openflow.Field) bool {
		return slices.ContainsFunc(f.Match, func(t flowtext.Term) bool { return slices.Contains(fields, t.Field) })
	}
	arp := has(openflow.ARPSpa, openflow.ARPTpa)
	switch {
	case len(f.Match) == 0 && f.Priority == 0 && f.Drops():
		return "packets that no other flow matches are dropped"
	case f.Priority == priorityAddress && has(checked):
		return "the destination's MAC address: the sender knows its gateway's alone"
	case has(checked) && has(openflow.EthSrc), has(checked) && f.Table == tableDispatch:
		return "a pod sends with its own MAC address only, and an unknown port sends nothing"
	case has(checked) && has(sender):
		return "a node with another pipeline sends number 0, so only known addresses have it"
	case has(checked):
		return "a peer sends from its pod prefix only, and to pods of this node only"
	case f.Table == tableFromPods && has(openflow.UDPDst, openflow.IPv4Dst):
		return "no pod sends tunnel packets to a node: the host would masquerade them as packets of this node"
	case f.Table == tableFromPods && has(openflow.ICMPv4Type):
		return "only routers send redirects"
	case f.Table == tableFromHost, f.Table == tableDispatch && f.Priority >= 250:
		return "a packet that the host sends with a pod's address has the pod's number, or is dropped, and not the host's"
	case f.Table == tableDispatch && f.Priority == 150:
		return "nothing but IPv4 and ARP comes from the host and the tunnel, and no inner source of no pod"
	case f.Table == tableARPPods && arp:
		return "a pod asks only pods of its tenant for their MAC address"
	case arp, len(f.Match) == 1 && f.MatchText() == "arp":
		return "ARP, as OpenShift SDN has it"
	case f.Table == tablePods, f.Table == tableSenders, f.Table == tableNumbers && f.Priority == 100:
		return "another pod, as F111, F114 and F115"
	case f.Table == tablePeers, f.Table == tableTunnel:
		return "another peer, as F121 and F123"
	case f.Table == tableRoutes && f.Priority == 300:
		return "as F139, with this node's gateway"
	}
	return ""
}
