package policyflows

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/felixlike/felixlike/model"
)

// policy is one direction of a policy: its rules, and the pods it applies to. It
// is there while it has either.
type policy struct {
	side
	precedence model.Precedence
	known      bool
	rules      []*rule
	pods       map[*pod]struct{}
	// refused tells that it is set aside: it has no flows, and its pods are
	// closed. crowded, that there is no priority left for a rule of it, which
	// comes to the same; so does oversized: it comes to too many flows.
	refused, crowded, oversized bool
	// closedSince is when one of the latter was first reported.
	closedSince time.Time
}

func (p *policy) aside() bool { return p.refused || p.crowded || p.oversized }

// rule is one rule of a policy with its place among the flows.
type rule struct {
	RuleID
	policy *policy
	layer  layer
	spec   model.Rule
	id     uint32
	// displaced tells that another rule had the id of its hash.
	displaced bool
	// priority is that of its clauses; zero until it has one.
	priority uint16
	// installed tells that its clauses are in the store.
	installed bool
	// dimensions is the number of its dimensions; the others are their places in
	// it, zero for one that is left out.
	dimensions, ofPods, ofPeers, ofPorts uint8
	ports                                []portMask
}

// use is what a rule asks a group for: its peers, or its named ports.
type use struct {
	rule  *rule
	named bool
}

// actionPriority is the priority of the flow that the fulfilled rule leads to.
func (r *rule) actionPriority() uint16 {
	if r.layer.networkPolicies() {
		return priorityRuleAction
	}
	return r.priority
}

// newRule numbers the dimensions: sources, destinations, ports.
func newRule(p *policy, index int, spec model.Rule) *rule {
	r := &rule{
		RuleID: RuleID{p.id, p.direction, index}, policy: p, layer: layerOf(p.id.Tier, p.direction), spec: spec,
	}
	next := func(wanted bool) uint8 {
		if wanted {
			r.dimensions++
			return r.dimensions
		}
		return 0
	}
	// A conjunction needs two dimensions.
	peers := !spec.AnyPeer || spec.AnyPort
	if p.direction == model.Egress {
		r.ofPods = next(true)
		r.ofPeers = next(peers)
	} else {
		r.ofPeers = next(peers)
		r.ofPods = next(true)
	}
	r.ofPorts = next(!spec.AnyPort)
	for _, ports := range spec.Ports {
		r.ports = append(r.ports, portMasks(ports)...)
	}
	slices.SortFunc(r.ports, portMask.compare)
	r.ports = slices.Compact(r.ports)
	return r
}

// matches reports whether any packet could match the rule.
func (r *rule) matches() bool {
	return (r.spec.AnyPeer || len(r.spec.Peers) > 0) && (r.spec.AnyPort || len(r.ports)+len(r.spec.NamedPorts) > 0)
}

// uses yields the groups of the rule's dimensions.
func (r *rule) uses(s *Store) func(yield func(*group, use) bool) {
	return func(yield func(*group, use) bool) {
		peers := r.spec.Peers
		if r.spec.AnyPeer {
			if r.ofPeers != 0 && !yield(s.all, use{r, false}) {
				return
			}
			peers = nil
		}
		for _, id := range peers {
			if !yield(s.group(id), use{r, false}) {
				return
			}
		}
		if r.spec.AnyPort {
			return
		}
		for _, id := range r.spec.NamedPorts {
			if !yield(s.group(id), use{r, true}) {
				return
			}
		}
	}
}

func sameRules(have []*rule, want []model.Rule) bool {
	return slices.EqualFunc(have, want, func(a *rule, b model.Rule) bool { return equalRules(a.spec, b) })
}

func equalRules(a, b model.Rule) bool {
	return a.Name == b.Name && a.Action == b.Action && a.AnyPeer == b.AnyPeer && a.AnyPort == b.AnyPort &&
		slices.Equal(a.Peers, b.Peers) && slices.Equal(a.Ports, b.Ports) && slices.Equal(a.NamedPorts, b.NamedPorts)
}

// SetPolicy creates or replaces a policy. Only rules that differ are touched.
func (s *Store) SetPolicy(p *model.Policy) {
	for _, d := range model.Directions() {
		s.setRules(side{p.ID, d}, p.Precedence, p.Rules(d), true)
	}
}

// RemovePolicy removes a policy. What it isolates stays isolated for as long as
// pods say that it applies to them.
func (s *Store) RemovePolicy(id model.PolicyID) {
	for _, d := range model.Directions() {
		s.setRules(side{id, d}, model.Precedence{}, nil, false)
	}
}

func (s *Store) setRules(at side, precedence model.Precedence, rules []model.Rule, known bool) {
	p := s.policy(at)
	if p.precedence != precedence {
		p.precedence = precedence
		s.layers[layerOf(at.id.Tier, at.direction)].stale = true
	}
	p.known = known
	if p.refused && !sameRules(p.rules, rules) {
		s.lift(p)
	}
	for i, old := range p.rules {
		if i >= len(rules) || !equalRules(old.spec, rules[i]) {
			s.removeRule(old)
		}
	}
	before := p.rules
	p.rules = make([]*rule, len(rules))
	for i, spec := range rules {
		if i < len(before) && equalRules(before[i].spec, spec) {
			p.rules[i] = before[i]
		} else {
			p.rules[i] = s.addRule(p, i, spec)
		}
	}
	s.asks(p, before)
	s.dropUnused(p)
}

func (s *Store) policy(at side) *policy {
	p := s.policies[at]
	if p == nil {
		p = &policy{side: at, pods: map[*pod]struct{}{}}
		s.policies[at] = p
	}
	return p
}

func (s *Store) dropUnused(p *policy) {
	if !p.known && len(p.pods) == 0 {
		delete(s.policies, p.side)
	}
}

func (s *Store) addRule(p *policy, index int, spec model.Rule) *rule {
	r := newRule(p, index, spec)
	s.rules[r.RuleID] = r
	s.ids.add(r.RuleID)
	s.layers[r.layer].rules++
	s.wait(r)
	return r
}

// removeRule removes the rule with all its clauses. Complete frees its id, unless another
// rule has taken its place.
func (s *Store) removeRule(r *rule) {
	s.uninstall(r)
	delete(s.rules, r.RuleID)
	s.dirty.rules[r.RuleID] = struct{}{}
	s.ids.remove(r.RuleID)
	s.layers[r.layer].rules--
	s.layers[r.layer].stale = true
}

// renumber gives rules the ids that they have now.
func (s *Store) renumber(changed []RuleID) {
	for _, id := range changed {
		if r := s.rules[id]; r != nil {
			s.number(r)
			s.touch(r)
		}
	}
}

// number gives a rule the id that it has now.
func (s *Store) number(r *rule) {
	r.id, r.displaced = s.ids.get(r.RuleID), s.ids.displaced(r.RuleID)
}

// Adopt reads which rules have ids other than their hashes in the switch, and gives them
// these ids. It is to be called once, before the flows are programmed for the first time.
func (s *Store) Adopt(ctx context.Context, c Counters) error {
	_, notes, err := readCounters(ctx, c)
	if err != nil {
		return err
	}
	s.Complete()
	s.renumber(s.ids.adopt(notes))
	s.Complete()
	return nil
}

// settle finds the priorities of a layer's rules where they may have changed,
// and brings clauses to where they belong.
func (s *Store) settle(l layer) {
	state := &s.layers[l]
	if !state.stale {
		return
	}
	state.stale = false
	if !l.networkPolicies() {
		s.settleOrdered(l)
		return
	}
	waiting, before := state.waiting, state.lanes
	state.waiting, state.lanes = nil, lanes(state.rules)
	if state.lanes != before {
		for _, r := range s.rules {
			if r.layer == l {
				s.place(r, state.lane(r))
			}
		}
	}
	for _, r := range waiting {
		if s.rules[r.RuleID] == r {
			s.place(r, state.lane(r))
		}
	}
}

func (l *layerState) lane(r *rule) uint16 { return firstLane - lane(r.RuleID, l.lanes) }

// wait has settle find the priority of a rule.
func (s *Store) wait(r *rule) {
	state := &s.layers[r.layer]
	state.stale = true
	if r.layer.networkPolicies() {
		state.waiting = append(state.waiting, r)
	}
}

func (s *Store) settleOrdered(l layer) {
	var rules []*rule
	crowded := map[*policy]bool{}
	for _, p := range s.policies {
		if layerOf(p.id.Tier, p.direction) == l {
			rules = append(rules, p.rules...)
			crowded[p] = false
		}
	}
	slices.SortFunc(rules, func(a, b *rule) int {
		return cmp.Or(a.policy.precedence.Compare(b.policy.precedence), a.RuleID.Compare(b.RuleID))
	})
	wishes := make([]ordered, len(rules))
	for i, r := range rules {
		wishes[i] = ordered{r.policy.precedence, r.Index, r.spec.Action}
	}
	priorities := l.order().assign(wishes)
	for i, r := range rules {
		crowded[r.policy] = crowded[r.policy] || priorities[i] == 0
	}
	for p, is := range crowded {
		if p.crowded != is {
			p.crowded = is
			s.closePods(p)
		}
	}
	for i, r := range rules {
		s.place(r, priorities[i])
	}
}

// place gives a rule its priority, and has its clauses there if they are to be
// anywhere.
func (s *Store) place(r *rule, priority uint16) {
	wanted := r.matches() && !r.policy.aside() && priority > 0
	if r.installed == wanted && r.priority == priority {
		return
	}
	s.uninstall(r)
	r.priority = priority
	if wanted {
		s.install(r)
	}
}

func (s *Store) install(r *rule) {
	r.installed = true
	for g, u := range r.uses(s) {
		g.use(u)
	}
	for _, m := range r.ports {
		c := portClause{r.layer, r.priority, m}
		if s.ports[c] == nil {
			s.ports[c] = map[*rule]struct{}{}
		}
		s.ports[c][r] = struct{}{}
	}
	s.touch(r)
}

func (s *Store) uninstall(r *rule) {
	if !r.installed {
		return
	}
	s.touch(r)
	r.installed = false
	for _, m := range r.ports {
		c := portClause{r.layer, r.priority, m}
		delete(s.ports[c], r)
		if len(s.ports[c]) == 0 {
			delete(s.ports, c)
		}
	}
	for g, u := range r.uses(s) {
		g.unuse(u)
		s.dropGroup(g)
	}
}

// touch notes that all flows which the rule has a part in have to be set.
func (s *Store) touch(r *rule) {
	if !r.installed {
		return
	}
	s.dirty.rules[r.RuleID] = struct{}{}
	for g, u := range r.uses(s) {
		for m := range g.members {
			if u.named == (m.Protocol != model.AnyProtocol) {
				s.dirty.members[memberClause{r.layer, m}] = struct{}{}
			}
		}
	}
	for _, m := range r.ports {
		s.dirty.ports[portClause{r.layer, r.priority, m}] = struct{}{}
	}
	for p := range r.policy.pods {
		s.dirty.pods[podClause{r.layer, p.name}] = struct{}{}
	}
}

func (m portMask) compare(o portMask) int {
	return cmp.Or(cmp.Compare(m.protocol, o.protocol), cmp.Compare(m.value, o.value), cmp.Compare(m.mask, o.mask))
}
