package policyflows

import "github.com/felixlike/felixlike/model"

// objects are the policies, groups and pods of the node, and the changes that have no
// flows yet.
type objects struct {
	families []model.Family
	policies map[side]*policy
	groups   map[model.GroupID]*group
	// members are the groups of each member, ports the rules of each clause of ports.
	members map[model.Member][]*group
	ports   map[portClause]map[*rule]struct{}
	// portSets are empty for layers other than those of NetworkPolicies.
	portSets [layerCount]portSets
	pods     map[string]*pod
	rules    map[RuleID]*rule
	// all is the group of any peer.
	all   *group
	dirty changes
}

func newObjects() *objects {
	o := &objects{
		policies: map[side]*policy{}, groups: map[model.GroupID]*group{}, members: map[model.Member][]*group{},
		ports: map[portClause]map[*rule]struct{}{}, pods: map[string]*pod{}, rules: map[RuleID]*rule{}, dirty: newChanges(),
	}
	for l := range layerCount {
		o.portSets[l] = portSets{layer: l, all: map[string]*portSet{}, crowded: map[*portSet]struct{}{}, limit: crowdedParts}
	}
	o.all = o.groupOf("")
	for _, m := range everything() {
		o.addMember(o.all, m)
	}
	return o
}

func (o *objects) policyOf(at side) *policy {
	p := o.policies[at]
	if p == nil {
		p = &policy{side: at, pods: map[*pod]struct{}{}}
		o.policies[at] = p
	}
	return p
}

func (o *objects) dropUnused(p *policy) {
	if !p.known && len(p.pods) == 0 {
		delete(o.policies, p.side)
	}
}

// groupOf returns the group, made if it is not there.
func (o *objects) groupOf(id model.GroupID) *group {
	g := o.groups[id]
	if g == nil {
		g = &group{id: id, members: map[model.Member]struct{}{}, users: map[use]struct{}{}}
		o.groups[id] = g
	}
	return g
}

func (o *objects) dropGroup(g *group) {
	if len(g.members) == 0 && len(g.users) == 0 {
		delete(o.groups, g.id)
	}
}

// addMember adds a member to a group.
func (o *objects) addMember(g *group, m model.Member) {
	if _, has := g.members[m]; has {
		return
	}
	g.members[m] = struct{}{}
	o.members[m] = append(o.members[m], g)
	o.markMember(g, m)
}

// removeMember removes a member from a group.
func (o *objects) removeMember(g *group, m model.Member) {
	if _, has := g.members[m]; !has {
		return
	}
	delete(g.members, m)
	groups := o.members[m]
	for i := range groups {
		if groups[i] == g {
			groups[i] = groups[len(groups)-1]
			groups[len(groups)-1] = nil
			groups = groups[:len(groups)-1]
			break
		}
	}
	if len(groups) == 0 {
		delete(o.members, m)
	} else {
		o.members[m] = groups
	}
	o.markMember(g, m)
}

// markMember makes the flows of a member dirty in all layers that ask the group.
func (o *objects) markMember(g *group, m model.Member) {
	for l := range layerCount {
		if g.asked[l][kind(m.Protocol != model.AnyProtocol)] > 0 {
			o.dirty.members[memberClause{l, m}] = struct{}{}
		}
	}
}

// markRule makes all flows dirty that the rule has a part in.
func (o *objects) markRule(r *rule) {
	if !r.installed {
		return
	}
	o.dirty.rules[r.RuleID] = struct{}{}
	for g, u := range o.usesOf(r) {
		for m := range g.members {
			if u.named == (m.Protocol != model.AnyProtocol) {
				o.dirty.members[memberClause{r.layer, m}] = struct{}{}
			}
		}
	}
	for _, m := range r.portClauses() {
		o.dirty.ports[portClause{r.layer, r.priority, m}] = struct{}{}
	}
	for p := range r.policy.pods {
		o.dirty.pods[podClause{r.layer, p.name}] = struct{}{}
	}
}

// markPods makes the flows dirty that close or isolate the pods of a policy.
func (o *objects) markPods(p *policy) {
	for q := range p.pods {
		o.dirty.closing[q.name] = struct{}{}
	}
}

// usesOf yields the groups of the rule's dimensions.
func (o *objects) usesOf(r *rule) func(yield func(*group, use) bool) {
	return func(yield func(*group, use) bool) {
		peers := r.spec.Peers
		if r.spec.AnyPeer {
			if r.ofPeers != 0 && !yield(o.all, use{r, false}) {
				return
			}
			peers = nil
		}
		for _, id := range peers {
			if !yield(o.groupOf(id), use{r, false}) {
				return
			}
		}
		if r.spec.AnyPort {
			return
		}
		for _, id := range r.spec.NamedPorts {
			if !yield(o.groupOf(id), use{r, true}) {
				return
			}
		}
	}
}

// install adds the clauses of a rule.
func (o *objects) install(r *rule) {
	r.installed = true
	o.useBit(r, 1)
	for g, u := range o.usesOf(r) {
		g.addUser(u)
	}
	for _, m := range r.portClauses() {
		c := portClause{r.layer, r.priority, m}
		if o.ports[c] == nil {
			o.ports[c] = map[*rule]struct{}{}
		}
		o.ports[c][r] = struct{}{}
	}
	o.markRule(r)
}

// useBit counts the installed rules that match the bit of a set of ports.
func (o *objects) useBit(r *rule, more int) {
	if r.bit == 0 {
		return
	}
	ps := &o.portSets[r.layer]
	before := ps.users
	if ps.users += more; before == 0 || ps.users == 0 {
		o.dirty.portSets[r.layer] = struct{}{}
	}
}

// uninstall removes the clauses of a rule.
func (o *objects) uninstall(r *rule) {
	if !r.installed {
		return
	}
	o.markRule(r)
	r.installed = false
	o.useBit(r, -1)
	for _, m := range r.portClauses() {
		c := portClause{r.layer, r.priority, m}
		delete(o.ports[c], r)
		if len(o.ports[c]) == 0 {
			delete(o.ports, c)
		}
	}
	for g, u := range o.usesOf(r) {
		g.removeUser(u)
		o.dropGroup(g)
	}
}
