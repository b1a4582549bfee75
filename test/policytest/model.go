package policytest

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// Model is the model of one node as its updates add up to it.
type Model struct {
	Nodes     map[string]*model.Node
	Groups    map[model.GroupID]*Group
	Policies  map[model.PolicyID]*model.Policy
	Endpoints map[model.PodID]*model.Endpoint
	Egresses  []model.EgressAddress
	// checked is the list of policies last checked by the Apply under way.
	checked []model.PolicyID
}

// Group is a group with its members.
type Group struct {
	model.Group
	Members map[model.Member]bool
}

// NewModel returns an empty model.
func NewModel() *Model {
	return &Model{
		Nodes: map[string]*model.Node{}, Groups: map[model.GroupID]*Group{},
		Policies: map[model.PolicyID]*model.Policy{}, Endpoints: map[model.PodID]*model.Endpoint{},
	}
}

// Apply applies updates in order. It is strict: an update that contradicts
// earlier ones, changes nothing, or leaves a reference to a missing
// object is an error.
func (m *Model) Apply(updates []model.Update) error {
	m.checked = nil
	for _, u := range updates {
		if err := m.apply(u); err != nil {
			return fmt.Errorf("%T %v: %w", u, u, err)
		}
	}
	return m.unused()
}

func (m *Model) apply(u model.Update) error {
	switch u := u.(type) {
	case model.NodeUpdate:
		m.Nodes[u.Node.Name] = u.Node
	case model.NodeRemove:
		return remove(m.Nodes, u.Name)
	case model.GroupUpdate:
		return m.applyGroup(u)
	case model.GroupRemove:
		for id, p := range m.Policies {
			if slices.Contains(references(p), u.ID) {
				return fmt.Errorf("policy %s still refers to it", id)
			}
		}
		return remove(m.Groups, u.ID)
	case model.PolicyUpdate:
		m.Policies[u.Policy.ID] = u.Policy
		for _, id := range references(u.Policy) {
			if m.Groups[id] == nil {
				return fmt.Errorf("refers to group %s, which is not there", id)
			}
		}
	case model.PolicyRemove:
		for id, e := range m.Endpoints {
			if slices.ContainsFunc(applied(e), func(list []model.PolicyID) bool { return slices.Contains(list, u.ID) }) {
				return fmt.Errorf("endpoint %s still refers to it", id)
			}
		}
		m.checked = nil
		return remove(m.Policies, u.ID)
	case model.EndpointUpdate:
		m.Endpoints[u.Endpoint.ID] = u.Endpoint
		for _, list := range applied(u.Endpoint) {
			if err := m.checkPolicies(list); err != nil {
				return err
			}
		}
	case model.EndpointRemove:
		return remove(m.Endpoints, u.ID)
	case model.EgressesUpdate:
		if reflect.DeepEqual(m.Egresses, u.Egresses) {
			return fmt.Errorf("changes nothing")
		}
		m.Egresses = u.Egresses
	default:
		return fmt.Errorf("unknown update")
	}
	return nil
}

func remove[K comparable, V any](all map[K]V, k K) error {
	if _, ok := all[k]; !ok {
		return fmt.Errorf("removes a missing object")
	}
	delete(all, k)
	return nil
}

func (m *Model) applyGroup(u model.GroupUpdate) error {
	g := m.Groups[u.Group.ID]
	switch {
	case g == nil:
		g = &Group{Group: u.Group, Members: map[model.Member]bool{}}
		m.Groups[u.Group.ID] = g
	case g.Group != u.Group:
		return fmt.Errorf("was %v before", g.Group)
	case len(u.Added)+len(u.Removed) == 0:
		return fmt.Errorf("changes nothing")
	}
	if !slices.IsSortedFunc(u.Added, model.Member.Compare) || !slices.IsSortedFunc(u.Removed, model.Member.Compare) {
		return fmt.Errorf("is not sorted")
	}
	for _, member := range u.Added {
		if g.Members[member] {
			return fmt.Errorf("adds %s again", member)
		}
		g.Members[member] = true
	}
	for _, member := range u.Removed {
		if !g.Members[member] {
			return fmt.Errorf("removes %s, which is not there", member)
		}
		delete(g.Members, member)
	}
	return nil
}

// unused reports an object of the model without a reference to it.
func (m *Model) unused() error {
	groups, policies := map[model.GroupID]bool{}, map[model.PolicyID]bool{}
	var last []model.PolicyID
	for _, e := range m.Endpoints {
		for _, list := range applied(e) {
			if same(list, last) {
				continue
			}
			for _, id := range list {
				policies[id] = true
			}
			last = list
		}
	}
	for id, p := range m.Policies {
		if !policies[id] {
			return fmt.Errorf("policy %s applies to no endpoint", id)
		}
		for _, g := range references(p) {
			groups[g] = true
		}
	}
	for id := range m.Groups {
		if !groups[id] {
			return fmt.Errorf("no policy refers to group %s", id)
		}
	}
	return nil
}

func references(p *model.Policy) []model.GroupID {
	var ids []model.GroupID
	for _, d := range model.Directions() {
		for _, r := range p.Rules(d) {
			ids = append(ids, slices.Concat(r.Peers, r.NamedPorts)...)
		}
	}
	return ids
}

// applied returns the lists of policies of an endpoint that are not empty.
func applied(e *model.Endpoint) [][]model.PolicyID {
	all := [][]model.PolicyID{
		e.Ingress.NetworkPolicies, e.Egress.NetworkPolicies,
		e.Ingress.Admin, e.Egress.Admin, e.Ingress.Baseline, e.Egress.Baseline,
	}
	return slices.DeleteFunc(all, func(list []model.PolicyID) bool { return len(list) == 0 })
}

// same reports whether two lists are one, as those of many endpoints are: ten
// thousand times ten thousand policies are a minute's work otherwise.
func same(a, b []model.PolicyID) bool { return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] }

// checkPolicies reports an error if a policy of an endpoint's list is not
// there, unless the list was the last one that was looked at.
func (m *Model) checkPolicies(list []model.PolicyID) error {
	if same(list, m.checked) {
		return nil
	}
	for _, id := range list {
		if m.Policies[id] == nil {
			return fmt.Errorf("refers to policy %s, which is not there", id)
		}
	}
	m.checked = list
	return nil
}

// String returns the model as text, equal for equal models.
func (m *Model) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.Nodes)) {
		fmt.Fprintf(&b, "node %s %v %v\n", name, m.Nodes[name].Addresses, m.Nodes[name].PodCIDRs)
	}
	for _, id := range slices.Sorted(maps.Keys(m.Groups)) {
		g := m.Groups[id]
		fmt.Fprintf(&b, "group %s %s %q\n", id, g.Kind, g.Description)
		for _, member := range slices.SortedFunc(maps.Keys(g.Members), model.Member.Compare) {
			fmt.Fprintf(&b, "  %s\n", member)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.Policies), model.PolicyID.Compare) {
		fmt.Fprintf(&b, "policy %s %+v\n", id, m.Policies[id].Precedence)
		for _, d := range model.Directions() {
			for _, r := range m.Policies[id].Rules(d) {
				fmt.Fprintf(&b, "  %+v\n", r)
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.Endpoints), model.PodID.Compare) {
		e := m.Endpoints[id]
		fmt.Fprintf(&b, "endpoint %s ingress %v egress %v\n", id, slices.Collect(e.Ingress.All()), slices.Collect(e.Egress.All()))
	}
	return b.String()
}

// allows judges a packet by the policies of one direction of a local endpoint. An unknown
// endpoint is closed, but not to its own node, which no NetworkPolicy denies either.
func (m *Model) allows(d model.Direction, id model.PodID, peer, destination netip.Addr, protocol model.Protocol, port uint16, ownNode bool) bool {
	e := m.Endpoints[id]
	if e == nil {
		return ownNode
	}
	matches := func(r model.Rule) bool {
		return m.peerMatches(r, peer) && m.portMatches(r, destination, protocol, port)
	}
	a := e.Applied(d)
	if action := m.first(a.Admin, d, matches); action == model.Allow || action.Denies() {
		return action == model.Allow
	}
	if a.Isolated() {
		return ownNode || m.first(a.NetworkPolicies, d, matches) == model.Allow
	}
	return !m.first(a.Baseline, d, matches).Denies()
}

// first returns the action of the first rule that matches, zero if none does.
func (m *Model) first(policies []model.PolicyID, d model.Direction, matches func(model.Rule) bool) model.Action {
	for _, id := range policies {
		for _, r := range m.Policies[id].Rules(d) {
			if matches(r) {
				if r.Action == model.Next {
					break
				}
				return r.Action
			}
		}
	}
	return 0
}

func (m *Model) peerMatches(r model.Rule, peer netip.Addr) bool {
	return r.AnyPeer || slices.ContainsFunc(r.Peers, func(id model.GroupID) bool {
		return Holds(m.Groups[id].Members, peer)
	})
}

// Holds reports whether a group with these members holds the address: the longest
// prefix that contains it decides, and must not be an exception (model.Member).
func Holds(members map[model.Member]bool, a netip.Addr) bool {
	var longest model.Member
	for member := range members {
		if member.Prefix.Contains(a) && (!longest.Prefix.IsValid() || member.Prefix.Bits() > longest.Prefix.Bits()) {
			longest = member
		}
	}
	return longest.Prefix.IsValid() && !longest.Except
}

func (m *Model) portMatches(r model.Rule, destination netip.Addr, protocol model.Protocol, port uint16) bool {
	if r.AnyPort {
		return true
	}
	for _, p := range r.Ports {
		if p.Protocol == protocol && (p.AllPorts() || p.First <= port && port <= p.Last) {
			return true
		}
	}
	want := model.AddressMember(destination)
	want.Protocol, want.Port = protocol, port
	return slices.ContainsFunc(r.NamedPorts, func(id model.GroupID) bool { return m.Groups[id].Members[want] })
}
