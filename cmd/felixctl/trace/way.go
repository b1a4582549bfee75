package trace

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// ErrElsewhere says that neither end of a packet is on one of the sites.
var ErrElsewhere = errors.New("neither end of the packet is on a node that was asked")

// Follow follows a packet through the sites: from the one that it begins at, over
// the tunnel or the network between the nodes to the next. Where that is not among them, it begins or ends there. The sites must be of one cluster. A rule on its way that is not known is
// an error (*UnknownRule).
func Follow(p Packet, sites []*Site, n Namer) (*Path, error) {
	p, err := p.check()
	if err != nil {
		return nil, err
	}
	if n == nil {
		n = nameless{}
	}
	w := &way{sites: sites, namer: n, path: &Path{Packet: p}, packet: p}
	if err := w.begin(); err != nil {
		return nil, err
	}
	NameRules(w.path.Steps, n)
	return w.path, nil
}

// BeforeDNAT follows a packet that comes to a node through the chain of the node's policies before DNAT, with the addresses that it comes with. The fate is
// Dropped, or ToNode if it goes on.
func BeforeDNAT(p Packet, s *Site, n Namer) (*Path, error) {
	p, err := p.check()
	if err != nil {
		return nil, err
	}
	if n == nil {
		n = nameless{}
	}
	in := s.Uplink
	if s.attachment(p.Source) != nil {
		in = s.Gateway
	}
	walk := &netfilter{node: s.Node, namer: n, packet: &hostPacket{Packet: p, in: in, conn: hostConnOf(p), local: s.Own}}
	path := &Path{Packet: p, Fate: ToNode, At: s.Node, Ingress: true}
	for _, r := range s.Rulesets {
		c := r.chains[rules.ChainHostsPrerouting]
		if c == nil {
			continue
		}
		walk.ruleset, walk.base = r, c
		v, err := walk.chain(c)
		if err != nil {
			return nil, err
		}
		if v == dropped {
			path.Fate = Dropped
		}
	}
	if path.Steps = walk.steps; path.Fate == Dropped {
		last := path.Decider()
		path.At = fmt.Sprintf("%s, %s, %s", s.Node, last.Place, last.Table)
	}
	NameRules(path.Steps, n)
	return path, nil
}

// way is a packet on its way.
type way struct {
	sites []*Site
	namer Namer
	path  *Path
	// packet is as it is now.
	packet Packet
	hops   int
}

// maxHops ends a walk that goes to and fro between host, bridge and nodes.
const maxHops = 16

// begin finds where the packet begins.
func (w *way) begin() error {
	p := w.packet
	for _, s := range w.sites {
		if s.owns(p.Destination) {
			w.path.Ingress = true
		}
		w.path.Egress = w.path.Egress || s.owns(p.Source)
		if s.encrypts(p) {
			return fmt.Errorf("node %s encrypts packets to and from other nodes: a trace knows no way through WireGuard", s.Node)
		}
	}
	for _, s := range w.sites {
		at := s.attachment(p.Source)
		switch {
		case at != nil && at == s.attachment(p.Destination):
			w.end(Stayed, at.Pod.String())
			return nil
		case at != nil && s.TrafficMode == model.PolicyOnly:
			return w.hostFrom(s, at.Entrance(), model.MAC(at.MAC))
		case at != nil:
			return w.bridge(s, at.OFPort, at.MAC, s.GatewayMAC, netip.Addr{})
		case s.Own(p.Source):
			return w.host(s, "")
		case s.owns(p.Source):
			return fmt.Errorf("no pod on %s has the address %s: it can send nothing", s.Node, p.Source)
		}
	}
	// It begins at a node that is not here, or outside.
	for _, s := range w.sites {
		if !s.owns(p.Destination) {
			continue
		}
		switch peer := s.peer(p.Source); {
		case peer == nil || s.TrafficMode == model.PolicyOnly || s.Own(p.Destination) && s.podNetwork(p.Destination) == nil && s.podNetwork(p.Source) == nil:
			return w.host(s, s.Uplink) // from outside, or between the addresses of two nodes
		case s.Way(peer, p.Family()) == model.ByTunnel:
			return w.bridge(s, s.TunnelPort, ovsdb.GatewayMAC(peer.Name), pipeline.VirtualMAC(), peer.Outer())
		default:
			return w.fromPeer(s, peer)
		}
	}
	return ErrElsewhere
}

func (w *way) hop() error {
	if w.hops++; w.hops > maxHops {
		return errors.New("the packet goes to and fro between bridge and host without end")
	}
	return nil
}

func (w *way) end(f Fate, at string) { w.path.Fate, w.path.At = f, at }

func (w *way) step(s Step) { w.path.Steps = append(w.path.Steps, s) }

// bridge takes the packet through the bridge of a site.
func (w *way) bridge(s *Site, port uint32, src, dst net.HardwareAddr, outer netip.Addr) error {
	if err := w.hop(); err != nil {
		return err
	}
	place := "bridge " + s.Bridge
	in := s.portName(port, w.namer)
	if s.Flows == nil {
		return w.assumedBridge(s, port)
	}
	f := newFields(w.packet, port, src, dst)
	if outer.IsValid() {
		f[openflow.TunnelSource(outer)] = flowtext.WordOf(outer.AsSlice())
	}
	b := &bridge{site: s, namer: w.namer, tracker: newTracker(w.packet, w.begunByGateway(s))}
	err := b.run(f)
	w.path.Steps = append(w.path.Steps, b.steps...)
	if err != nil {
		return err
	}
	switch len(b.out) {
	case 0:
		w.end(Dropped, s.Node+", "+place+", "+w.path.Decider().Table)
		return nil
	case 1:
		return w.left(s, b.out[0])
	}
	return fmt.Errorf("%s: the packet from %s leaves by %d ports", place, in, len(b.out))
}

// begunByGateway reports whether the packet's connection was opened through the site's
// gateway port: by this node itself, or from outside.
func (w *way) begunByGateway(s *Site) bool {
	from := w.packet.Source
	if w.packet.Conn == Answer {
		from = w.packet.Destination
	}
	peer := s.peer(from)
	return s.attachment(from) == nil && (peer == nil || s.Way(peer, w.packet.Family()) != model.ByTunnel)
}

// left takes the packet on from a port of the bridge.
func (w *way) left(s *Site, out output) error {
	w.packet.Source, w.packet.Destination = out.fields.source(), out.fields.destination()
	switch out.port {
	case s.GatewayPort:
		return w.host(s, s.Gateway)
	case s.TunnelPort:
		if to := openflow.TunIPv6Dst; !out.fields[to].IsZero() {
			return w.tunnel(s, out.fields[to].Addr(to))
		}
		return w.tunnel(s, out.fields[openflow.TunDst].Addr(openflow.TunDst))
	case ovsdb.SNATUplinkOFPort:
		return w.outside(s)
	}
	for _, at := range s.Attachments {
		if at.OFPort == out.port {
			w.end(ToPod, at.Pod.String())
			return nil
		}
	}
	return fmt.Errorf("bridge %s of %s: the packet leaves by the unknown port %d", s.Bridge, s.Node, out.port)
}

// tunnel takes the packet to the peer with the outer address.
func (w *way) tunnel(s *Site, outer netip.Addr) error {
	for _, n := range s.Nodes {
		if n.Outer() != outer || n.Name == s.Node {
			continue
		}
		w.step(Step{Node: s.Node, Place: "tunnel", Effect: fmt.Sprintf("to %s (%s)", n.Name, outer)})
		for _, peer := range w.sites {
			if peer.Node == n.Name {
				return w.bridge(peer, peer.TunnelPort, s.GatewayMAC, pipeline.VirtualMAC(), s.node().Outer())
			}
		}
		w.end(ToPeer, n.Name)
		return nil
	}
	return fmt.Errorf("tunnel of %s: no node has the address %s", s.Node, outer)
}

// assumedBridge takes the packet where it has to go, as if the bridge let everything
// through: its flows are not known.
func (w *way) assumedBridge(s *Site, port uint32) error {
	step := Step{Node: s.Node, Place: "bridge " + s.Bridge}
	p := w.packet
	if port != s.GatewayPort {
		step.Effect = "its flows were not read: taken to hand the packet to the host"
		w.step(step)
		return w.host(s, s.Gateway)
	}
	step.Effect = "its flows were not read: taken to deliver the packet"
	w.step(step)
	if at := s.attachment(p.Destination); at != nil {
		w.end(ToPod, at.Pod.String())
		return nil
	}
	if peer := s.peer(p.Destination); peer != nil {
		return w.tunnel(s, peer.Outer())
	}
	w.end(Dropped, "no pod has the address "+p.Destination.String())
	return nil
}

// host takes the packet through the host of a site. It came in by the
// interface in, or "" if the host sends it.
func (w *way) host(s *Site, in string) error { return w.hostFrom(s, in, model.MAC{}) }

// fromPeer takes the packet of a peer through the host of a site. It came without a tunnel, from the neighbour by which the site's own
// packets to the peer leave.
func (w *way) fromPeer(s *Site, peer *model.Node) error {
	h := s.hop(peer, w.packet.Family())
	return w.hostFrom(s, h.Interface, h.MAC)
}

// hostFrom is host for a packet from a neighbour with the MAC address, if that is known.
func (w *way) hostFrom(s *Site, in string, mac model.MAC) error {
	if err := w.hop(); err != nil {
		return err
	}
	out, err := s.route(w.packet, in)
	if err != nil {
		return err
	}
	p := &hostPacket{Packet: w.packet, in: in, out: out, mac: mac, conn: hostConnOf(w.packet), local: s.Own, masqueraded: s.masqueraded(w.packet.Family())}
	hook := func(at tables.HookPoint) (bool, error) {
		n := &netfilter{node: s.Node, packet: p, namer: w.namer}
		passes, err := n.hook(s.Rulesets, at)
		w.path.Steps = append(w.path.Steps, n.steps...)
		if err == nil && !passes {
			last := w.path.Decider()
			w.end(Dropped, fmt.Sprintf("%s, %s, %s", s.Node, last.Place, last.Table))
		}
		return passes, err
	}
	if in != "" {
		if passes, err := hook(tables.HookPrerouting); err != nil || !passes {
			return err
		}
	}
	away := in == s.Gateway && out != "" && p.mark&rules.MarkAway != 0
	if away { // a policy rule leads it back to the bridge (ovsfwd/hostnet)
		out, p.out = s.Gateway, s.Gateway
	}
	if out == "" {
		if in != "" {
			if passes, err := hook(tables.HookInput); err != nil || !passes {
				return err
			}
		}
		w.step(Step{Node: s.Node, Place: "host", Effect: "to this node itself"})
		w.end(ToNode, s.Node)
		return nil
	}
	w.step(Step{Node: s.Node, Place: "host", Effect: routed(in, out)})
	if in == "" {
		if passes, err := hook(tables.HookOutput); err != nil || !passes {
			return err
		}
	}
	if in != "" {
		if passes, err := hook(tables.HookForward); err != nil || !passes {
			return err
		}
		if passes, err := w.foreign(s, Forwarded{Packet: p.Packet, In: in, Out: out, New: p.conn.state == tables.StateNew}); err != nil || !passes {
			return err
		}
	}
	if passes, err := hook(tables.HookPostrouting); err != nil || !passes {
		return err
	}
	w.packet = p.Packet
	if out != s.Gateway {
		return w.outside(s)
	}
	dst := pipeline.VirtualMAC()
	if at := s.attachment(w.packet.Destination); at != nil {
		dst = at.MAC
	} else if away {
		dst = pipeline.AwayMAC()
		if s.Flows == nil {
			w.step(Step{Node: s.Node, Place: "bridge " + s.Bridge, Effect: "its flows were not read: taken to send the packet to the node with the address of its egress"})
			w.end(Outside, w.packet.Destination.String())
			return nil
		}
	}
	return w.bridge(s, s.GatewayPort, s.GatewayMAC, dst, netip.Addr{})
}

// foreign takes the packet past the chains of other programs at FORWARD. An accept in one of our tables does not undo their drop.
func (w *way) foreign(s *Site, p Forwarded) (passes bool, err error) {
	if s.Foreign == nil {
		return true, nil
	}
	chains, err := s.Foreign(p)
	if err != nil || len(chains) == 0 {
		return err == nil, err
	}
	c := chains[0]
	w.step(Step{Node: s.Node, Place: c.Table, Table: "chain " + c.Chain, Effect: "drop, by a chain of another program", Foreign: true})
	w.end(Dropped, fmt.Sprintf("%s by chain %s of %s of another program", s.Node, c.Chain, c.Table))
	return false, nil
}

// outside takes the packet beyond the uplink: to another node, or out of the cluster; or to a pod that is not on our bridge.
func (w *way) outside(s *Site) error {
	if at := s.attachment(w.packet.Destination); at != nil {
		w.end(ToPod, at.Pod.String())
		return nil
	}
	if peer := s.peer(w.packet.Destination); peer != nil {
		for _, other := range w.sites {
			if other.Node == peer.Name && other.TrafficMode == model.PolicyOnly {
				return w.host(other, other.Uplink)
			}
			if other.Node == peer.Name {
				return w.fromPeer(other, s.node())
			}
		}
		w.end(ToPeer, peer.Name)
		return nil
	}
	w.end(Outside, w.packet.Destination.String())
	return nil
}

func routed(in, out string) string {
	if in == "" {
		return "sent by this node itself, out by " + out
	}
	return fmt.Sprintf("in by %s, routed out by %s", in, out)
}

// route returns the interface that the host sends a packet out by, as its routes say
// (ovsfwd/hostnet), or "" if it is for the host.
func (s *Site) route(p Packet, in string) (string, error) {
	if s.Own(p.Destination) {
		return "", nil
	}
	if s.TrafficMode == model.PolicyOnly {
		if at := s.attachment(p.Destination); at != nil {
			return at.Entrance(), nil
		}
		return s.Uplink, nil
	}
	peer := s.peer(p.Destination)
	if peer == nil {
		if s.podNetwork(p.Destination) != nil || s.attachment(p.Destination) != nil {
			return s.Gateway, nil
		}
		return s.Uplink, nil
	}
	switch s.Way(peer, p.Family()) {
	case model.ByPeer, model.ByNetwork:
		return s.hop(peer, p.Family()).Interface, nil
	case model.NoWay:
		return "", fmt.Errorf("node %s has no way to node %s by IPv%s: trafficMode %s, and one of the two has no address of the family", s.Node, peer.Name, p.Family(), s.TrafficMode)
	}
	// The host's own packets to a peer's address take the node network, those from pods take the tunnel.
	if in == s.Gateway || s.podNetwork(p.Destination) != nil {
		return s.Gateway, nil
	}
	return s.Uplink, nil
}

// hostConnOf returns the state of the packet's connection in the host's conntrack.
func hostConnOf(p Packet) hostConn {
	c := hostConn{state: tables.StateNew, source: p.Source}
	switch p.Conn {
	case Allowed, Answer, Reopened, Related:
		c.state, c.mark = tables.StateEstablished, rules.MarkAllowed|rules.MarkSettled|rules.MarkUntranslated
	case Unjudged:
		c.state = tables.StateEstablished
	case Invalid:
		c.state = tables.StateInvalid
	}
	if p.Conn == Related {
		c.state = tables.StateRelated
	}
	if c.answer = p.Conn == Answer || p.Conn == Related; c.answer {
		c.source = p.Destination
	}
	return c
}

// portName names a port of the bridge.
func (s *Site) portName(port uint32, n Namer) string {
	switch port {
	case s.GatewayPort:
		return "the gateway port"
	case s.TunnelPort:
		return "the tunnel"
	}
	return named(fmt.Sprintf("port %d", port), n.Port(s.Node, port))
}
