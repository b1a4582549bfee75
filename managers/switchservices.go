package managers

import (
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
	if p.ID.Protocol != model.TCP && p.ID.Protocol != model.UDP || affinity(p) > pipeline.MaxAffinity {
		return nil
	}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.Kind != model.ClusterIP || len(f.Endpoints) == 0 || len(f.Endpoints) > pipeline.MaxEndpoints || f.Sources != nil {
			continue
		}
		s := pipeline.ServiceFrontend{Address: netip.AddrPortFrom(f.Addr, f.Port), Protocol: p.ID.Protocol, Affinity: affinity(p)}
		for _, e := range f.Endpoints {
			s.Endpoints = append(s.Endpoints, e.AddrPort)
			if (e.Local || inPrefixes(node.PodCIDRs, e.Addr())) && !slices.Contains(s.Own, e.Addr()) {
				s.Own = append(s.Own, e.Addr())
			}
		}
		if !slices.ContainsFunc(s.Endpoints, func(e netip.AddrPort) bool { return !switched(node, own, p.ID.Protocol, e) }) {
			all = append(all, s)
		}
	}
	return all
}

// switched reports whether the bridge may lead packets to an endpoint. The spoofguard has looked at the cluster IP only, so the address must not be one that
// it guards: no end of a tunnel, and no address beyond the routes of pods. That of a Service would be looked up again. To an address of this
// node itself, policies before DNAT would judge the packet, which they do not while it has the cluster IP.
func switched(node pipeline.Node, own []netip.Addr, p model.Protocol, e netip.AddrPort) bool {
	a := e.Addr()
	tunnel := p == model.UDP && slices.Contains(model.TunnelPorts(), e.Port())
	return a.IsGlobalUnicast() && !inPrefixes(node.ServiceCIDRs, a) && !slices.Contains(own, a.Unmap()) && !tunnel && a != pipeline.Hairpin(model.FamilyOf(a))
}

func inPrefixes(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}
