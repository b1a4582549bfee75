package managers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// switchServices keeps the flows by which pods reach cluster IPs through the bridge, for a bridge that judges packets. What they do not
// have goes to the host, whose table has all Services (ServiceManager).
type switchServices struct {
	flows Flows
	ports map[model.ServicePortID]*model.ServicePort
	dirty dirty[model.ServicePortID]
	// leads is set while the bridge leads to Services, rendered has the inputs that all their flows share, of the last complete.
	leads    bool
	rendered pipeline.Node
}

// servicesKey begins the keys of the flows.
const servicesKey = "service "

// BehindOthers tells flows of Services (openflow.FlowTable.Behind): without them, packets go to the host.
func BehindOthers(table uint8, key string) bool {
	return (table == pipeline.TableSelect || table == pipeline.TableTranslate) && (key == "" || strings.HasPrefix(key, servicesKey))
}

func newSwitchServices(flows Flows) *switchServices {
	return &switchServices{flows: flows, ports: map[model.ServicePortID]*model.ServicePort{}, dirty: dirty[model.ServicePortID]{}}
}

func (s *switchServices) update(u model.Update) {
	switch u := u.(type) {
	case model.ServicePortUpdate:
		s.ports[u.Port.ID] = u.Port
		s.dirty.add(u.Port.ID)
	case model.ServicePortRemove:
		delete(s.ports, u.ID)
		s.dirty.add(u.ID)
	}
}

// complete sets the flows of changed ports, and of all if what they share has changed. Most changes of the node are none.
func (s *switchServices) complete(node pipeline.Node) {
	leads := node.Services && node.Mode == pipeline.Full
	if leads != s.leads || leads && !sameServices(node, s.rendered) {
		for id := range s.ports {
			s.dirty.add(id)
		}
		s.leads, s.rendered = leads, node
	}
	for _, id := range s.dirty.take(compareServicePorts) {
		var frontends []pipeline.ServiceFrontend
		if p := s.ports[id]; p != nil && leads {
			frontends = SwitchedFrontends(node, p)
		}
		if len(frontends) == 0 {
			s.flows.RemoveFlows(servicesKey + id.String())
			continue
		}
		s.flows.SetFlows(servicesKey+id.String(), func() (flows []openflow.Flow) {
			for _, f := range frontends {
				flows = append(flows, pipeline.Service(node, f)...)
			}
			return flows
		})
	}
}

// sameServices reports whether the flows of Services are the same for two states of this node.
func sameServices(a, b pipeline.Node) bool {
	return slices.Equal(a.PodCIDRs, b.PodCIDRs) && slices.Equal(a.ServiceCIDRs, b.ServiceCIDRs) && slices.Equal(a.Gateways, b.Gateways) && slices.Equal(a.HostAddresses, b.HostAddresses)
}

// SwitchedFrontends returns the cluster IPs of a port that pods reach through the bridge.
func SwitchedFrontends(node pipeline.Node, p *model.ServicePort) (all []pipeline.ServiceFrontend) {
	own := node.Own()
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if leftToHost(node, own, p, f) != "" {
			continue
		}
		s := pipeline.ServiceFrontend{Address: netip.AddrPortFrom(f.Addr, f.Port), Protocol: p.ID.Protocol, Affinity: affinity(p)}
		for _, e := range f.Endpoints {
			s.Endpoints = append(s.Endpoints, e.AddrPort)
			if (e.Local || inPrefixes(node.PodCIDRs, e.Addr())) && !slices.Contains(s.Own, e.Addr()) {
				s.Own = append(s.Own, e.Addr())
			}
		}
		all = append(all, s)
	}
	return all
}

// LeftToHost returns why pods reach an address of a Service by way of the host, while a bridge of the userspace datapath judges packets, or "" if they do
// through the bridge.
func LeftToHost(node pipeline.Node, p *model.ServicePort, f *model.Frontend) string {
	return leftToHost(node, node.Own(), p, f)
}

func leftToHost(node pipeline.Node, own []netip.Addr, p *model.ServicePort, f *model.Frontend) string {
	switch {
	case f.Kind != model.ClusterIP || f.Sources != nil:
		return "not a cluster IP"
	case p.ID.Protocol != model.TCP && p.ID.Protocol != model.UDP:
		return "neither TCP nor UDP"
	case !inPrefixes(node.ServiceCIDRs, f.Addr):
		return "outside the prefixes of Services"
	case len(f.Endpoints) == 0:
		return "no endpoint here"
	case len(f.Endpoints) > pipeline.MaxEndpoints:
		return fmt.Sprintf("more than %d endpoints", pipeline.MaxEndpoints)
	case affinity(p) > pipeline.MaxAffinity:
		return fmt.Sprintf("a session affinity above %d s", int(pipeline.MaxAffinity.Seconds()))
	}
	for _, e := range f.Endpoints {
		if why := unswitched(node, own, p.ID.Protocol, e.AddrPort); why != "" {
			return fmt.Sprintf("endpoint %s: %s", e.AddrPort, why)
		}
	}
	return ""
}

// ServicesNode returns this node as SwitchedFrontends needs it: base with the values of its Node object, its addresses, and prefixes of Services of the datastore.
func ServicesNode(base pipeline.Node, n *model.Node, host []netip.Addr, services []netip.Prefix) pipeline.Node {
	base = withNode(base, n)
	base.HostAddresses = host
	base.ServiceCIDRs = slices.Concat(base.ServiceCIDRs, services)
	return base
}

// unswitched returns why the bridge may not lead packets to an endpoint, or "". The spoofguard has looked at the cluster IP only, so the address must not be one that
// it guards: no end of a tunnel, and no address beyond the routes of pods. That of a Service would be looked up again. To an address of this
// node itself, policies before DNAT would judge the packet, which they do not while it has the cluster IP.
func unswitched(node pipeline.Node, own []netip.Addr, p model.Protocol, e netip.AddrPort) string {
	a := e.Addr()
	switch {
	case !a.IsGlobalUnicast() || a == pipeline.Hairpin(model.FamilyOf(a)):
		return "not routed between pods"
	case inPrefixes(node.ServiceCIDRs, a):
		return "an address of a Service"
	case slices.Contains(own, a.Unmap()):
		return "an address of this node"
	case p == model.UDP && slices.Contains(model.TunnelPorts(), e.Port()):
		return "the port of a tunnel"
	}
	return ""
}

func inPrefixes(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}
