package prove

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/tables"
)

// uplink is the name of the interface to the outside: no rule names it.
const uplink = "uplink"

// node is a node with what it holds, as first packets of connections of one family pass it.
type node struct {
	*space
	model  *control.Model
	bridge *bridge
	// own, pods and tunnelled are the packets to the node itself, to the pods of this node, and by tunnel to other nodes. peers are those to other nodes
	// themselves, which take the tunnel if they are a pod's. possible are packets that a node can get and send.
	own, pods, tunnelled, peers, possible packets
	// forward, input and output are what netfilter does with new connections.
	forward, input, output map[final]packets
	// names are the variables of the interfaces.
	names []int
}

// fate is where packets of a new connection end, and the source that they have there, "" for their own.
type fate struct{ to, nat string }

func (f fate) String() string {
	if f.nat != "" {
		return f.to + ", source " + f.nat
	}
	return f.to
}

func (f fate) detail() string { return f.String() }

func newNode(s *space, m *control.Model, st *dump.State) (*node, error) {
	n := &node{space: s, model: m, bridge: newBridge(s, st.Flows)}
	var tunnelled, peers []netip.Prefix
	for _, other := range m.Nodes {
		if other.Name != m.Node {
			tunnelled = append(tunnelled, other.PodCIDRs...)
			peers = append(peers, singles(other.Addresses)...)
		}
	}
	n.own, n.pods = s.prefixes(destination, singles(localOf(m))), s.prefixes(destination, podsOf(m))
	n.tunnelled, n.peers = s.prefixes(destination, tunnelled), s.prefixes(destination, peers)
	n.possible = n.canBe()
	for _, f := range []field{in, out} {
		for bit := range s.bits[f] {
			n.names = append(n.names, s.begin[f]+bit)
		}
	}
	filter, err := newNetfilter(s, st)
	if err != nil {
		return nil, err
	}
	for i, to := range []*map[final]packets{&n.forward, &n.input, &n.output} {
		if *to, err = filter.finals(ways()[i], contexts()["new"], memory{}); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func singles(all []netip.Addr) (out []netip.Prefix) {
	for _, a := range all {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

func podsOf(m *control.Model) (all []netip.Prefix) {
	for _, at := range m.Attachments {
		all = append(all, singles(at.Addresses)...)
	}
	return all
}

// podNetworks returns the prefixes of the pods of all nodes.
func podNetworks(m *control.Model) (all []netip.Prefix) {
	for _, n := range m.Nodes {
		all = append(all, n.PodCIDRs...)
	}
	return all
}

// servicesOf returns the prefixes of addresses of Services.
func servicesOf(m *control.Model) []netip.Prefix {
	return slices.Concat(m.Settings.ServiceCIDRs, m.ServiceCIDRs)
}

// prefixesOf returns the prefixes that the way of a packet depends on.
func prefixesOf(m *control.Model) []netip.Prefix {
	all := slices.Concat(unrouted(), hairpins(), servicesOf(m), singles(localOf(m)), podsOf(m), podNetworks(m))
	for _, n := range m.Nodes {
		all = append(all, singles(n.Addresses)...)
	}
	return all
}

// hairpins are the sources of packets that the switch takes for those of a pod to itself.
func hairpins() []netip.Prefix {
	return singles([]netip.Addr{pipeline.Hairpin(model.IPv4), pipeline.Hairpin(model.IPv6)})
}

// canBe returns the packets that a node can get and send: between addresses that routers forward, to pods that are there, and with a segment that asks for
// a connection if it is TCP's. None is for a Service.
func (n *node) canBe() packets {
	var podNetwork []netip.Prefix
	for _, node := range n.model.Nodes {
		if node.Name == n.model.Node {
			podNetwork = append(podNetwork, node.PodCIDRs...)
		}
	}
	unheard := n.or(n.prefixes(source, unrouted()), n.prefixes(destination, append(unrouted(), servicesOf(n.model)...)))
	missing := n.without(n.prefixes(destination, podNetwork), n.or(n.pods, n.own))
	all := n.without(n.or(n.isSYN(), n.not(n.protocolPorts(model.TCP, 0, 65535))), n.or(unheard, missing))
	if toService := (tables.MatchConnDNAT{}); slices.Contains(n.conditions, toService.String()) {
		all = n.without(all, n.flag(toService))
	}
	return all
}

// start is a place where packets of new connections come in.
type start struct {
	name string
	run  func(n *node) (map[fate]packets, error)
}

func startsOf(m *control.Model) []start {
	gateway, own := ovsdb.GatewayMAC(m.Node), singles(localOf(m))
	inCluster := hairpins()
	for _, n := range m.Nodes {
		inCluster = append(inCluster, n.PodCIDRs...)
	}
	all := []start{
		{"from outside", func(n *node) (map[fate]packets, error) {
			return n.host(uplink, n.without(n.possible, n.prefixes(source, append(inCluster, own...))), "", 0)
		}},
		{"from the node", func(n *node) (map[fate]packets, error) {
			return n.host("", n.without(n.and(n.possible, n.prefixes(source, own)), n.own), "", 0)
		}},
	}
	for _, at := range m.Attachments {
		mac, _ := net.ParseMAC(at.MAC) // without one, spoofguard knows no packet of the pod
		all = append(all, start{"from " + at.Pod.String(), func(n *node) (map[fate]packets, error) {
			return n.enter(entering(n.family, at.OFPort, mac, gateway), n.without(n.possible, n.prefixes(destination, singles(at.Addresses))), "", 0)
		}})
	}
	for _, other := range m.Nodes {
		if outer := other.Outer(); other.Name != m.Node && outer.IsValid() {
			all = append(all, start{"from " + other.Name, func(n *node) (map[fate]packets, error) {
				st := entering(n.family, ovsdb.TunnelOFPort, ovsdb.GatewayMAC(other.Name), pipeline.VirtualMAC())
				st.words[openflow.TunnelSource(outer)] = flowWord(outer)
				return n.enter(st, n.and(n.possible, n.or(n.pods, n.own)), "", 0)
			}})
		}
	}
	return all
}

// enter returns the fates of packets that enter the switch.
func (n *node) enter(st inSwitch, some packets, nat string, hops int) (map[fate]packets, error) {
	if hops > 4 {
		return nil, &NotProved{"node " + n.model.Node, "packets go to and fro between switch and host"}
	}
	ends, err := n.bridge.table(0, st, 0)
	if err != nil {
		return nil, err
	}
	out := gathered[fate]{}
	for e, p := range ends {
		if p = n.and(p, some); p == nothing {
			continue
		}
		to := cmp.Or(e.nat, nat)
		switch {
		case e.rejected:
			tcp := n.protocolPorts(model.TCP, 0, 65535)
			out.add(n.space, fate{to: "rejected with " + tables.TCPReset.String()}, n.and(p, tcp))
			out.add(n.space, fate{to: "rejected with " + tables.AdminProhibited.String()}, n.without(p, tcp))
		case e.port == 0:
			out.add(n.space, fate{to: string(drops)}, p)
		case e.port == ovsdb.GatewayOFPort:
			if err := n.into(out, func() (map[fate]packets, error) { return n.host(model.GatewayPort, p, to, hops) }); err != nil {
				return nil, err
			}
		case e.port == ovsdb.TunnelOFPort:
			out.add(n.space, fate{n.peerAt(e.words), to}, p)
		default:
			out.add(n.space, fate{n.podAt(e.port), to}, p)
		}
	}
	return joined(n.space, out), nil
}

// into adds the fates that a part of the way has.
func (n *node) into(out gathered[fate], way func() (map[fate]packets, error)) error {
	more, err := way()
	for f, p := range more {
		out.add(n.space, f, p)
	}
	return err
}

// podAt names the end of packets that leave the switch by a port.
func (n *node) podAt(port uint32) string {
	for _, at := range n.model.Attachments {
		if at.OFPort == port {
			return "to the pod " + at.Pod.String()
		}
	}
	return fmt.Sprintf("to port %d", port)
}

// peerAt names the end of packets that leave by the tunnel.
func (n *node) peerAt(w words) string {
	for _, other := range n.model.Nodes {
		if outer := other.Outer(); outer.IsValid() && w[openflow.TunnelDestination(outer)] == flowWord(outer) {
			return "by the tunnel to " + other.Name
		}
	}
	return "by the tunnel to no node"
}

// host returns the fates of packets that enter the host by an interface, or that it sends itself.
func (n *node) host(in string, some packets, nat string, hops int) (map[fate]packets, error) {
	out := gathered[fate]{}
	byTunnel := n.tunnelled
	if in == model.GatewayPort {
		byTunnel = n.or(byTunnel, n.peers)
	}
	byGateway := n.without(n.or(n.pods, byTunnel), n.own)
	byRoute := map[string]packets{"": n.and(some, n.own), model.GatewayPort: n.and(some, byGateway), uplink: n.without(some, n.or(n.own, byGateway))}
	for to, some := range byRoute {
		finals := n.forward
		switch {
		case in == "":
			finals = n.output
		case to == "":
			finals = n.input
		}
		for f, p := range finals {
			p = n.and(n.whatever(n.names, n.and(p, n.between(in, to))), some)
			if p == nothing {
				continue
			}
			switch nat := cmp.Or(f.nat, nat); {
			case f.verdict != accepts:
				out.add(n.space, fate{to: string(f.verdict)}, p)
			case to == "":
				out.add(n.space, fate{"to the node", nat}, p)
			case to == uplink:
				out.add(n.space, fate{"to the outside", nat}, p)
			default:
				if err := n.into(out, func() (map[fate]packets, error) { return n.fromGateway(p, nat, hops) }); err != nil {
					return nil, err
				}
			}
		}
	}
	return joined(n.space, out), nil
}

// between returns the packets that come in by one interface and leave by another.
func (s *space) between(from, to string) packets {
	return s.and(s.interfaceIs(in, from), s.interfaceIs(out, to))
}

// fromGateway returns the fates of packets that the host sends to the gateway port: with the address of the pod, or that of the router for others.
func (n *node) fromGateway(some packets, nat string, hops int) (map[fate]packets, error) {
	out := gathered[fate]{}
	send := func(to net.HardwareAddr, some packets) error {
		if some == nothing {
			return nil
		}
		return n.into(out, func() (map[fate]packets, error) {
			return n.enter(entering(n.family, ovsdb.GatewayOFPort, ovsdb.GatewayMAC(n.model.Node), to), some, nat, hops+1)
		})
	}
	for _, at := range n.model.Attachments {
		mac, _ := net.ParseMAC(at.MAC)
		to := n.prefixes(destination, singles(at.Addresses))
		if err := send(mac, n.and(some, to)); err != nil {
			return nil, err
		}
		some = n.without(some, to)
	}
	err := send(pipeline.VirtualMAC(), some)
	return joined(n.space, out), err
}

// world returns one model for both sides: that of all pods that either has.
func world(models []*control.Model) (*control.Model, error) {
	if len(models) == 0 {
		return nil, &NotProved{"flows", "they differ, and neither side has a model with the pods and nodes"}
	}
	all := *models[0]
	all.Attachments = slices.Clone(all.Attachments)
	where := "node " + all.Node
	for _, m := range models {
		switch s := m.Settings; {
		case m.Judges() != nil:
			return nil, &NotProved{where, "pipelineVariant: openshift"}
		case s.TrafficMode != model.Encap:
			return nil, &NotProved{where, fmt.Sprintf("traffic mode %s over switch and host", s.TrafficMode)}
		case s.SNAT:
			return nil, &NotProved{where, "source translation in the switch (snat: openflow)"}
		case len(m.Egresses) > 0:
			return nil, &NotProved{where, "Egresses over switch and host"}
		case m.Node != all.Node || !slices.Equal(m.HostAddresses, all.HostAddresses) || !reflect.DeepEqual(m.Nodes, all.Nodes):
			return nil, &NotProved{where, "the two sides have other nodes or addresses of nodes"}
		}
		for _, at := range m.Attachments {
			i := slices.IndexFunc(all.Attachments, func(known control.Attachment) bool { return known.Pod == at.Pod || known.OFPort == at.OFPort })
			switch {
			case i < 0:
				all.Attachments = append(all.Attachments, at)
			case !reflect.DeepEqual(all.Attachments[i], at):
				return nil, &NotProved{"pod " + at.Pod.String(), "its port or its addresses differ"}
			}
		}
	}
	return &all, nil
}

// compareNodes compares where the first packets of connections end.
func (p *proof) compareNodes(f model.Family, a, b Side) (*space, error) {
	m, err := world(p.models)
	if err != nil {
		return nil, err
	}
	s := newSpaceFor(f, p.models, prefixesOf(m), a.State, b.State)
	s.ended = p.ended
	if s.local == nil {
		s.local = localOf(m)
	}
	var sides [2]*node
	for i, one := range []Side{a, b} {
		if sides[i], err = newNode(s, m, one.State); err != nil {
			return nil, err
		}
	}
	for _, start := range startsOf(m) {
		var fates [2]map[fate]packets
		for i, n := range sides {
			if fates[i], err = start.run(n); err != nil {
				return nil, err
			}
		}
		differences(p, s, start.name, "new", everything, fates)
	}
	return s, nil
}
