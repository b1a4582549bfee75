package trace

import (
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// Site is a node with its programmed chains and flows.
type Site struct {
	// Node is its name, Nodes all nodes of the cluster.
	Node  string
	Nodes []*model.Node
	// HostAddresses are all addresses that the node itself has.
	HostAddresses []netip.Addr
	// TrafficMode is the way of packets between nodes. Subnets are the node's addresses with the length of their
	// prefixes, Hops the neighbours that lead to peers without a tunnel: a peer's packets come from there, too.
	TrafficMode model.TrafficMode
	Subnets     []netip.Prefix
	Hops        []model.Hop
	Attachments []*model.Attachment
	// Bridge is the name of the integration bridge, Gateway that of its port to the
	// host, and Uplink a name for the host's outside interface if no hop has its name.
	Bridge, Gateway, Uplink string
	GatewayPort, TunnelPort uint32
	GatewayMAC              net.HardwareAddr
	// Rulesets are the tables of netfilter that are ours, Flows the bridge's. Without
	// flows the bridge lets everything pass to where it has to go.
	Rulesets []*Ruleset
	Flows    *Flows
	// Foreign returns the chains of other programs at FORWARD of the host that drop a packet for certain. It may be nil.
	Foreign func(Forwarded) ([]ForeignChain, error)
}

// Forwarded is a packet that the host forwards from an interface to another one. New says that its connection is.
type Forwarded struct {
	Packet
	In, Out string
	New     bool
}

// ForeignChain is a chain of another program, with the table that it is in.
type ForeignChain struct{ Table, Chain string }

func (s *Site) node() *model.Node {
	for _, n := range s.Nodes {
		if n.Name == s.Node {
			return n
		}
	}
	return &model.Node{Name: s.Node}
}

// attachment returns the interface of the local pod with the address, or nil.
func (s *Site) attachment(a netip.Addr) *model.Attachment {
	for _, at := range s.Attachments {
		if slices.Contains(at.Addresses, a) {
			return at
		}
	}
	return nil
}

// Own reports whether an address is one of the node itself.
func (s *Site) Own(a netip.Addr) bool {
	n := s.node()
	return slices.Contains(s.HostAddresses, a) || slices.Contains(n.Addresses, a) || n.Gateway(model.FamilyOf(a)) == a
}

// masqueraded returns the source of packets that the host masquerades.
func (s *Site) masqueraded(f model.Family) netip.Addr {
	n := s.node()
	if a := n.Address(f); a.IsValid() {
		return a
	}
	return n.Gateway(f)
}

// podNetwork returns the node with the address in a pod prefix, or nil.
func (s *Site) podNetwork(a netip.Addr) *model.Node {
	for _, n := range s.Nodes {
		if slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return n
		}
	}
	return nil
}

// peer returns the other node that has the address, or the prefix of the pod that
// has it, or nil.
func (s *Site) peer(a netip.Addr) *model.Node {
	if n := s.podNetwork(a); n != nil {
		if n.Name == s.Node {
			return nil
		}
		return n
	}
	for _, n := range s.Nodes {
		if n.Name != s.Node && slices.Contains(n.Addresses, a) {
			return n
		}
	}
	return nil
}

// owns reports whether packets from the address begin at this node: its own, or
// that of a pod of it.
func (s *Site) owns(a netip.Addr) bool {
	if s.Own(a) || s.attachment(a) != nil {
		return true
	}
	n := s.podNetwork(a)
	return n != nil && n.Name == s.Node
}

// Way returns the way of packets of a family between this node and another one.
func (s *Site) Way(peer *model.Node, f model.Family) model.Way {
	return s.TrafficMode.Way(s.node(), peer, s.Subnets, f)
}

// hop returns the neighbour by which packets to a peer leave without a tunnel, and come. Its name is that of the
// uplink if the node does not know the neighbour.
func (s *Site) hop(peer *model.Node, f model.Family) model.Hop {
	for _, h := range s.Hops {
		if h.Address == peer.Address(f).Unmap() {
			return h
		}
	}
	return model.Hop{Interface: s.Uplink}
}

// encrypts reports whether a packet travels through WireGuard between this node's pods and another node.
func (s *Site) encrypts(p Packet) bool {
	return s.TrafficMode == model.WireGuard && (s.owns(p.Source) && s.peer(p.Destination) != nil || s.owns(p.Destination) && s.peer(p.Source) != nil)
}
