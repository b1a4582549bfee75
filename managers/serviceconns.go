package managers

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// Each packet of a flow of UDP or SCTP keeps its entry alive, so a client that does not stop is led to a former endpoint for ever; or,
// if it began before the first endpoint came, to none. (A TCP connection ends by itself, and to an endpoint that terminates it goes on.)

// strands reports whether a change of a port may leave such flows behind, with tcp also such connections of TCP. Either port may be nil.
func strands(old, now *model.ServicePort, tcp bool) bool {
	if old == nil || now == nil {
		p := old
		if p == nil {
			p = now
		}
		return p != nil && (tcp || p.ID.Protocol != model.TCP)
	}
	if now.ID.Protocol == model.TCP && !tcp {
		return false
	}
	before, after := destinations{}, destinations{}
	before.add(old)
	after.add(now)
	for key, had := range before {
		has, there := after[key]
		if !there {
			return true
		}
		for e := range had {
			if !has[e] {
				return true
			}
		}
	}
	for key, has := range after { // the first endpoint
		if len(before[key]) == 0 && len(has) > 0 {
			return true
		}
	}
	return false
}

// destinations are the endpoints of frontends to which connections may lead.
type destinations map[frontend]map[netip.AddrPort]bool

// frontend is a destination of clients; that of a NodePort is the unspecified address.
type frontend struct {
	netip.AddrPort
	protocol uint8
}

func (d destinations) add(p *model.ServicePort) {
	for i := range p.Frontends {
		f := &p.Frontends[i]
		all := map[netip.AddrPort]bool{}
		for _, some := range [][]model.ServiceEndpoint{f.Endpoints, f.Inside} {
			for _, e := range some {
				all[e.AddrPort] = true
			}
		}
		others := p.Serving
		if p.ID.Protocol == model.TCP {
			others = p.Known // to an endpoint that is not ready it goes on
		}
		for _, e := range others {
			if e.Addr().Is4() == f.Addr.Is4() {
				all[e] = true
			}
		}
		d[frontend{netip.AddrPortFrom(f.Addr, f.Port), uint8(p.ID.Protocol)}] = all
	}
}

// EndTCP has connections of TCP end as well when their endpoint is no longer one of the Service: the endpoint may be of another tenant now,
// and the packets that the host has translated do not show the client's.
func (m *ServiceManager) EndTCP() { m.tcp = true }

// Stranded returns a function that reports whether an entry of UDP or SCTP, or TCP after EndTCP, leads past the endpoints of its Service,
// or nil if no change since the last Reconciled can have left one. It needs to know the addresses of this node.
func (m *ServiceManager) Stranded() func(c *conntrack.Connection, local func(netip.Addr) bool) bool {
	if !m.hostStranded {
		return nil
	}
	return m.stranded(0)
}

// StrandedInBridge is Stranded for the connections that the bridge leads to Services, since the last Ended.
func (m *ServiceManager) StrandedInBridge() func(c *conntrack.Connection) bool {
	if !m.bridgeStranded {
		return nil
	}
	stranded := m.stranded(pipeline.ServiceZone)
	return func(c *conntrack.Connection) bool { return stranded(c, func(netip.Addr) bool { return false }) }
}

func (m *ServiceManager) stranded(zone uint16) func(c *conntrack.Connection, local func(netip.Addr) bool) bool {
	all := destinations{}
	for id, p := range m.ports {
		if m.tcp || id.Protocol != model.TCP {
			all.add(p)
		}
	}
	return func(c *conntrack.Connection, local func(netip.Addr) bool) bool {
		if p := model.Protocol(c.Original.Protocol); c.Zone != zone || p != model.UDP && p != model.SCTP && (p != model.TCP || !m.tcp) {
			return false
		}
		to := netip.AddrPortFrom(c.Original.Dst, c.Original.DstPort)
		endpoints, found := all[frontend{to, c.Original.Protocol}]
		ours := zone == pipeline.ServiceZone || c.Mark&rules.MarkService != 0
		if !found && (ours || local(to.Addr()) && m.servesNodePorts(to.Addr())) {
			unspecified := netip.IPv4Unspecified()
			if to.Addr().Is6() {
				unspecified = netip.IPv6Unspecified()
			}
			endpoints, found = all[frontend{netip.AddrPortFrom(unspecified, to.Port()), c.Original.Protocol}]
		}
		leads := netip.AddrPortFrom(c.Reply.Src, c.Reply.SrcPort)
		switch {
		case !found:
			return ours && leads != to // the Service is gone; another program may have set the mark
		case leads == to:
			return len(endpoints) > 0 && !endpoints[to] // it began before the first endpoint came
		}
		return !endpoints[leads]
	}
}

// servesNodePorts reports whether NodePorts are served on an address of this node.
func (m *ServiceManager) servesNodePorts(a netip.Addr) bool {
	return !a.IsLoopback() && slices.ContainsFunc(m.nodePorts, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Repaired says that the table was not as it should be for some time.
func (m *ServiceManager) Repaired() { m.hostStranded = true }

// Reconciled says that the entries of Stranded are gone, Ended that those of StrandedInBridge are.
func (m *ServiceManager) Reconciled() { m.hostStranded = false }
func (m *ServiceManager) Ended()      { m.bridgeStranded = false }
