// Package judge judges packets by the model of one node, as the backends do. It is for packets that no backend
// judges: those of established connections, and denied packets whose rule is to be named.
//
// It does no I/O and knows no addresses of nodes: its users decide which packets policy judges at all. It is
// tested against felixlike/policy/oracle on random clusters with policies of all kinds.
package judge

import (
	"net/netip"

	"github.com/gaissmai/bart"

	"github.com/felixlike/felixlike/model"
)

// Judge has the policies and groups of the model. It takes updates in the order of the engine. It is used from
// one goroutine at a time.
type Judge struct {
	policies map[model.PolicyID]*model.Policy
	groups   map[model.GroupID]*group
}

// New returns a Judge without policies.
func New() *Judge {
	return &Judge{policies: map[model.PolicyID]*model.Policy{}, groups: map[model.GroupID]*group{}}
}

// Packet is the first packet of a connection, after DNAT. Port is the destination port, of ICMP the
// model.ICMPMessage, and 0 where the protocol has neither.
type Packet struct {
	Source, Destination netip.Addr
	Protocol            model.Protocol
	Port                uint16
}

// Decision is the answer of the policies of one end.
type Decision struct {
	// Action is Allow, Deny or Reject.
	Action model.Action
	// Policy and Rule name the rule that decided; they are empty if none did. Title is the name that the author
	// gave the rule.
	Policy      model.PolicyID
	Rule, Title string
	// Isolated is set if NetworkPolicies isolate the end, and none of their rules allows the packet.
	Isolated bool
}

// OnUpdate takes updates of policies and groups.
func (j *Judge) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.PolicyUpdate:
		j.policies[u.Policy.ID] = u.Policy
	case model.PolicyRemove:
		delete(j.policies, u.ID)
	case model.GroupUpdate:
		g := j.groups[u.Group.ID]
		if g == nil {
			g = newGroup()
			j.groups[u.Group.ID] = g
		}
		g.change(u.Added, u.Removed)
	case model.GroupRemove:
		delete(j.groups, u.ID)
	}
}

// UsersOf returns the policies with a rule that names one of the groups.
func (j *Judge) UsersOf(groups map[model.GroupID]bool) []model.PolicyID {
	if len(groups) == 0 {
		return nil
	}
	var all []model.PolicyID
	for id, p := range j.policies {
		if names(p, groups) {
			all = append(all, id)
		}
	}
	return all
}

func names(p *model.Policy, groups map[model.GroupID]bool) bool {
	for _, d := range model.Directions() {
		for _, r := range p.Rules(d) {
			for _, ids := range [...][]model.GroupID{r.Peers, r.NamedPorts} {
				for _, id := range ids {
					if groups[id] {
						return true
					}
				}
			}
		}
	}
	return false
}

// Decide judges a packet by the policies that apply to one of its ends: the destination for ingress, the source
// for egress.
func (j *Judge) Decide(applied model.Applied, d model.Direction, p Packet) Decision {
	if found := j.first(applied.Admin, d, p); found.Action != 0 && found.Action != model.Pass {
		return found
	}
	if applied.Isolated() {
		if found := j.first(applied.NetworkPolicies, d, p); found.Action == model.Allow {
			return found
		}
		return Decision{Action: model.Deny, Isolated: true}
	}
	if found := j.first(applied.Baseline, d, p); found.Action != 0 && found.Action != model.Pass {
		return found
	}
	return Decision{Action: model.Allow}
}

// first returns the first rule that matches. Its action is zero if none does.
func (j *Judge) first(policies []model.PolicyID, d model.Direction, p Packet) Decision {
	for _, id := range policies {
		policy := j.policies[id]
		if policy == nil {
			continue
		}
		for _, r := range policy.Rules(d) {
			if j.matches(r, d, p) {
				if r.Action == model.Next {
					break
				}
				return Decision{Action: r.Action, Policy: id, Rule: r.Name, Title: r.Title}
			}
		}
	}
	return Decision{}
}

func (j *Judge) matches(r model.Rule, d model.Direction, p Packet) bool {
	peer := p.Source
	if d == model.Egress {
		peer = p.Destination
	}
	return (r.AnyPeer || j.amongPeers(r.Peers, peer)) && j.matchesPort(r, p)
}

func (j *Judge) amongPeers(groups []model.GroupID, a netip.Addr) bool {
	for _, id := range groups {
		if g := j.groups[id]; g != nil && g.holds(a) {
			return true
		}
	}
	return false
}

func (j *Judge) matchesPort(r model.Rule, p Packet) bool {
	if r.AnyPort {
		return true
	}
	for _, ports := range r.Ports {
		if ports.Protocol == p.Protocol && (ports.AllPorts() || ports.First <= p.Port && p.Port <= ports.Last) {
			return true
		}
	}
	for _, id := range r.NamedPorts {
		if g := j.groups[id]; g != nil && g.ports[port{p.Destination, p.Protocol, p.Port}] {
			return true
		}
	}
	return false
}

// group has the members of a group for look-ups.
type group struct {
	// prefixes has whether a prefix belongs to the group, or is taken out of it (model.Member.Except).
	prefixes bart.Table[bool]
	ports    map[port]bool
}

// port is a member of a group of kind AddressPorts.
type port struct {
	address  netip.Addr
	protocol model.Protocol
	number   uint16
}

func newGroup() *group { return &group{ports: map[port]bool{}} }

func (g *group) change(added, removed []model.Member) {
	for _, m := range removed {
		if m.Protocol == model.AnyProtocol {
			g.prefixes.Delete(m.Prefix)
		} else {
			delete(g.ports, portOf(m))
		}
	}
	for _, m := range added {
		if m.Protocol == model.AnyProtocol {
			g.prefixes.Insert(m.Prefix, !m.Except)
		} else {
			g.ports[portOf(m)] = true
		}
	}
}

func portOf(m model.Member) port { return port{m.Prefix.Addr(), m.Protocol, m.Port} }

// holds reports whether the longest prefix that contains the address belongs to the group.
func (g *group) holds(a netip.Addr) bool {
	belongs, found := g.prefixes.Lookup(a)
	return found && belongs
}
