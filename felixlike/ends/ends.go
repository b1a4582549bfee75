// Package ends tells by which addresses and which port policy judges a connection of this node, and whether it judges it at all. Its users judge
// connections that are known already: revalidate and staged, with whose tests it is tested.
package ends

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// Site is this node as a list of its connections is read.
type Site struct {
	// InSwitch reports that the bridge judges packets, and tracks them.
	InSwitch bool
	// Pods are the attached pods, by address.
	Pods map[netip.Addr]model.PodID
	// own are the addresses of this node, which policy never judges.
	own      map[netip.Addr]bool
	services []netip.Prefix
}

// Look returns the site, or nil during a change of the backend: connections are between two enforcement points then. It runs in the loop. services
// are the prefixes of Service addresses in the settings.
func Look(v driver.Loop, services []netip.Prefix) *Site {
	if v.Changing() {
		return nil
	}
	t := v.Model()
	s := &Site{
		InSwitch: v.Backend().Place() == backend.InSwitch,
		Pods:     map[netip.Addr]model.PodID{}, own: map[netip.Addr]bool{},
		services: slices.Concat(services, t.Services.Prefixes),
	}
	for id, a := range t.Attachments {
		if t.Endpoints[id] == nil {
			continue // its address may be another pod's by now
		}
		for _, addr := range a.Addresses {
			s.Pods[addr] = id
		}
	}
	for _, a := range t.Host.Addresses {
		s.own[a] = true
	}
	if n := t.Nodes[v.Node()]; n != nil {
		for _, f := range model.Families() {
			s.own[n.Address(f)], s.own[n.Gateway(f)] = true, true
		}
	}
	return s
}

// Of returns the two addresses and the destination port (of ICMP the model.ICMPMessage) by which policy judges a
// connection: after DNAT, and before the source is replaced.
func (s *Site) Of(k *conntrack.Connection) (from, to netip.Addr, port uint16) {
	from, to = k.Original.Src, k.Reply.Src
	port = k.Reply.SrcPort
	if k.Original.IsICMP() {
		port = model.ICMPMessage(k.Original.ICMPType, k.Original.ICMPCode)
	}
	if s.InSwitch && from == pipeline.Hairpin(model.FamilyOf(from)) {
		from = to // a pod that reaches itself through a Service
	}
	return from, to, port
}

// Judged reports whether policy judges packets between two addresses: not those of the node itself, and not those to a Service on their way from
// the switch to the host, which translates the address; they come back, and are judged.
func (s *Site) Judged(from, to netip.Addr) bool {
	return !s.own[from] && !s.own[to] && (!s.InSwitch || !slices.ContainsFunc(s.services, func(p netip.Prefix) bool { return p.Contains(to) }))
}
