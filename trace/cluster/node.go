package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/dump"
	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/trace"
	"github.com/felixlike/felixlike/trace/live"
)

// Node is a node that is asked.
type Node struct {
	live.Node
	// Bridge is the name of the integration bridge, Agent the node's.
	Bridge string
	Agent  *control.Client
	// What Read has read: what the agent says of itself, and the node as a tracer
	// sees it.
	Status control.Status
	Site   *trace.Site
}

// read reads what the agent knows, and what the node holds.
func (n *Node) read(ctx context.Context) error {
	var err error
	if n.Status, err = n.Agent.Status(ctx); err != nil {
		return err
	}
	n.Name, n.Backend = n.Status.Node, n.Status.Backend
	if n.Held, err = n.hold(ctx); err != nil {
		return fmt.Errorf("read what %s holds: %w", n.Name, err)
	}
	n.Site = &trace.Site{
		Node: n.Name, Bridge: n.Bridge, Gateway: felixlike.GatewayPort, Uplink: "uplink", GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort,
		GatewayMAC: ovsdb.GatewayMAC(n.Name), Rulesets: trace.Rulesets(n.Held), Flows: trace.NewFlows(n.Held),
	}
	return n.identify()
}

// hold reads chains, sets and flows with the tools of the backend.
func (n *Node) hold(ctx context.Context) (*dump.State, error) {
	s := &dump.State{}
	nft, err := n.Run(ctx, "nft", "list", "ruleset")
	if err == nil {
		s.Tables, err = dump.ParseNFT(strings.NewReader(nft))
	}
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(n.Backend, felixlike.IPTables) {
		if err := n.holdIPTables(ctx, s); err != nil {
			return nil, err
		}
	}
	flows, err := n.Run(ctx, "ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "unix:"+filepath.Join(n.OVSDir, n.Bridge+".mgmt"))
	if err == nil {
		s.Flows, err = dump.ParseFlows(strings.NewReader(flows))
	}
	return s, err
}

func (n *Node) holdIPTables(ctx context.Context, s *dump.State) error {
	variant := strings.TrimPrefix(n.Backend, felixlike.IPTables)
	for _, f := range model.Families() {
		tool := "iptables" + variant + "-save"
		if f == model.IPv6 {
			tool = "ip6tables" + variant + "-save"
		}
		saved, err := n.Run(ctx, tool, "-c")
		if err != nil {
			return err
		}
		tables, err := dump.ParseIPTables(strings.NewReader(saved), f)
		if err != nil {
			return err
		}
		s.Tables = append(s.Tables, tables...)
	}
	saved, err := n.Run(ctx, "ipset", "save")
	if err == nil {
		s.IPSets, err = dump.ParseIPSets(strings.NewReader(saved))
	}
	return err
}

// identify fills in the nodes, and which pods are attached by which port.
func (n *Node) identify() error {
	for _, one := range n.Status.Nodes {
		m := &model.Node{Name: one.Name}
		for _, text := range one.Addresses {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return fmt.Errorf("node %s: %w", one.Name, err)
			}
			m.Addresses = append(m.Addresses, a)
		}
		for _, text := range one.PodCIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return fmt.Errorf("node %s: %w", one.Name, err)
			}
			m.PodCIDRs = append(m.PodCIDRs, p)
		}
		n.Site.Nodes = append(n.Site.Nodes, m)
	}
	for _, e := range n.Status.Endpoints {
		if e.Interface == "" {
			continue
		}
		a := &model.Attachment{Pod: model.PodID{Namespace: e.Namespace, Name: e.Name}, Interface: e.Interface}
		for _, text := range e.Addresses {
			if addr, err := netip.ParseAddr(text); err == nil {
				a.Addresses = append(a.Addresses, addr)
			}
		}
		a.OFPort, a.MAC = portOf(n.Held, a.Addresses)
		n.Site.Attachments = append(n.Site.Attachments, a)
	}
	return nil
}

// portOf returns the port and the MAC address to which spoofguard has bound one of
// the addresses.
func portOf(s *dump.State, addrs []netip.Addr) (uint32, net.HardwareAddr) {
	for _, f := range s.FlowTable(pipeline.TableSpoofGuard) {
		for _, field := range []openflow.Field{openflow.IPv4Src, openflow.IPv6Src} {
			source, has := f.Term(field)
			port, hasPort := f.Term(openflow.InPort)
			mac, hasMAC := f.Term(openflow.EthSrc)
			if has && hasPort && hasMAC && source.Exact() && slices.Contains(addrs, trace.AddrOf(field, source.Value)) {
				return uint32(port.Value.Lo), macOf(mac.Value.Lo)
			}
		}
	}
	return 0, nil
}

func macOf(n uint64) net.HardwareAddr {
	return net.HardwareAddr{byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}
