package trace

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// backends are those that are traced without a kernel: the variants of iptables have
// the same rules.
func backends() []string {
	return []string{config.NFTables, nftablesMaps, config.IPTablesLegacy, config.OpenFlow}
}

// nftablesMaps is backend nftables with the layout maps.
const nftablesMaps = config.NFTables + "-maps"

// sitesOf renders a cluster for a backend: one site a node.
func sitesOf(t testing.TB, c *oracle.Cluster, backend string) []*Site {
	t.Helper()
	var sites []*Site
	for _, n := range c.Nodes {
		sites = append(sites, siteOf(t, c, backend, n.Name))
	}
	return sites
}

func siteOf(t testing.TB, c *oracle.Cluster, backend, node string) *Site {
	t.Helper()
	return siteWith(t, c, node, &control.Model{Node: node, Backend: backend, Settings: control.Settings{Bridge: "br-int", Masquerade: true}})
}

// siteWith renders a node with the settings of a model.
func siteWith(t testing.TB, c *oracle.Cluster, node string, m *control.Model) *Site {
	t.Helper()
	if m.Backend == nftablesMaps {
		m.Backend, m.Settings.NFTablesLayout = config.NFTables, config.LayoutMaps
	}
	e := policy.New(node)
	for _, n := range c.Nodes {
		e.SetNode(n)
	}
	for _, n := range c.Namespaces {
		e.SetNamespace(n)
	}
	for _, p := range c.Policies {
		e.SetNetworkPolicy(p)
	}
	for _, p := range c.ClusterPolicies {
		e.SetClusterNetworkPolicy(p)
	}
	e.SetIsolation(c.Antrea.Isolation)
	for _, o := range c.Antrea.All() {
		e.SetAntrea(o)
	}
	// One node reports denied packets; the verdicts are the same.
	m.DenialsReported = node == c.Nodes[0].Name
	s := &Site{
		Node: node, Bridge: m.Settings.Bridge, Gateway: model.GatewayPort, Uplink: "uplink",
		GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: ovsdb.GatewayMAC(node),
	}
	for i, p := range c.Pods {
		e.SetPod(p)
		if p.Spec.NodeName != node || p.Spec.HostNetwork {
			continue
		}
		a := &model.Attachment{
			Pod: model.PodID{Namespace: p.Namespace, Name: p.Name}, Interface: fmt.Sprintf("fx-%d", i),
			OFPort: uint32(10 + i), MAC: net.HardwareAddr{0x0a, 0, 0, 0, 0, byte(i)},
		}
		for _, ip := range p.Status.PodIPs {
			a.Addresses = append(a.Addresses, netip.MustParseAddr(ip.IP))
		}
		e.SetLocalAddresses(a.Pod, a.Addresses)
		s.Attachments = append(s.Attachments, a)
	}
	for _, u := range e.Flush() {
		m.Add(u)
	}
	m.Subnets, m.Hops = routedTo(m)
	m.HopsKnown = m.Settings.TrafficMode != model.Encap
	s.TrafficMode, s.Subnets, s.Hops = m.Settings.TrafficMode, m.Subnets, m.Hops
	s.Nodes, m.Attachments = m.Nodes, control.NewAttachments(s.Attachments)
	self := s.node()
	m.HostAddresses = append(slices.Clone(self.Addresses), self.Gateway(model.IPv4), self.Gateway(model.IPv6))
	s.HostAddresses = m.HostAddresses
	if h, has := c.Hosts[node]; has {
		m.Failsafe = &h.Failsafe
	}
	state, err := wanted.Of(m, m.Backend)
	if err != nil {
		t.Fatal(err)
	}
	s.Rulesets, s.Flows = Rulesets(state), NewFlows(state)
	return s
}
