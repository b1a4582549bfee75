package policyflows

import (
	"cmp"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// Flows is what the store sets: groups of flows by key. render is called at
// once and again whenever the flows have to be sent; until the key is set again
// it returns the same.
type Flows interface {
	SetFlows(key string, render func() []openflow.Flow)
	RemoveFlows(key string)
}

// JudgedKey is the key of the flows without which nothing new leaves the switch
// (pipeline.Judged). They are to come behind all others.
const JudgedKey = "judged"

// Options are what a store is made with.
type Options struct {
	Flows Flows
	// HashID says where the id of a rule is looked for first; HashID if nil.
	HashID func(RuleID) uint32
	// BoundRates is what Store.BoundRates says at first.
	BoundRates bool
}

// Store holds the rules, groups and pods that the flows of policy follow from.
// Its setters are cheap; Complete sets the flows of what has changed. It is not
// safe for concurrent use.
type Store struct {
	flows    Flows
	ids      *ids
	families []model.Family
	policies map[side]*policy
	groups   map[model.GroupID]*group
	members  map[model.Member][]*group
	ports    map[portClause]map[*rule]struct{}
	pods     map[string]*pod
	rules    map[RuleID]*rule
	layers   [layerCount]layerState
	networks map[model.GroupID]*networks
	all      *group
	// refused are the policies that are set aside.
	refused map[*policy]struct{}
	dirty   changes
	// reported tells that what is denied is reported.
	reported bool
	// bounded tells that the rate of new connections of each pod is bounded.
	bounded bool
	// meters are those of the pods that have flows with one.
	meters map[string]uint32
}

// side is a policy in one direction.
type side struct {
	id        model.PolicyID
	direction model.Direction
}

func (s side) compare(o side) int {
	return cmp.Or(s.id.Compare(o.id), cmp.Compare(s.direction, o.direction))
}

// String returns "ingress of default/web".
func (s side) String() string { return s.direction.String() + " of " + s.id.String() }

// layerState is what the priorities of a layer's rules depend on.
type layerState struct {
	// rules counts those of an unordered layer, lanes the lanes they are in.
	rules, lanes int
	// stale tells that priorities have to be found: those of the rules that wait,
	// or where rules are ordered, of all.
	stale   bool
	waiting []*rule
}

// changes are what Complete has to look at.
type changes struct {
	base    bool
	members map[memberClause]struct{}
	ports   map[portClause]struct{}
	pods    map[podClause]struct{}
	rules   map[RuleID]struct{}
	closing map[string]struct{}
	rates   map[string]struct{}
	// networks are the groups of these to be filled, weights the policies to be
	// weighed.
	networks map[model.GroupID]struct{}
	weights  map[*policy]struct{}
}

func newChanges() changes {
	return changes{
		members: map[memberClause]struct{}{}, ports: map[portClause]struct{}{}, pods: map[podClause]struct{}{},
		rules: map[RuleID]struct{}{}, closing: map[string]struct{}{}, rates: map[string]struct{}{},
		networks: map[model.GroupID]struct{}{}, weights: map[*policy]struct{}{},
	}
}

// New returns a store without policies, for a node of no family.
func New(o Options) *Store {
	if o.HashID == nil {
		o.HashID = HashID
	}
	s := &Store{
		flows: o.Flows, ids: newIDs(o.HashID), policies: map[side]*policy{}, groups: map[model.GroupID]*group{},
		members: map[model.Member][]*group{}, ports: map[portClause]map[*rule]struct{}{}, pods: map[string]*pod{},
		networks: map[model.GroupID]*networks{}, rules: map[RuleID]*rule{}, refused: map[*policy]struct{}{}, dirty: newChanges(), bounded: o.BoundRates, meters: map[string]uint32{},
	}
	s.dirty.base = true
	for l := range s.layers {
		s.layers[l].lanes = 1
	}
	s.all = s.group("")
	for _, m := range everything() {
		s.all.add(s, m)
	}
	return s
}

// SetFamilies says in which families the node has pods: flows are rendered for
// these.
func (s *Store) SetFamilies(families []model.Family) {
	if slices.Equal(s.families, families) {
		return
	}
	s.families = slices.Clone(families)
	for _, r := range s.rules {
		s.touch(r)
	}
	for name := range s.pods {
		s.dirty.closing[name] = struct{}{}
	}
}

// Complete sets the flows of all that has changed, in a fixed order.
func (s *Store) Complete() {
	for _, id := range s.ids.settle() {
		s.number(s.rules[id])
	}
	s.weigh()
	for l := range layerCount {
		s.settle(l)
	}
	if s.dirty.base {
		s.flows.SetFlows("denied", func() []openflow.Flow { return deniedFlows(s.deny()) })
		s.flows.SetFlows(JudgedKey, pipeline.Judged)
	}
	for _, c := range slices.SortedFunc(maps.Keys(s.dirty.members), memberClause.compare) {
		s.set(c.key(), s.memberUsed(c), func() []openflow.Flow { return s.memberFlows(c) })
	}
	for _, c := range slices.SortedFunc(maps.Keys(s.dirty.ports), portClause.compare) {
		s.set(c.key(), len(s.ports[c]) > 0, func() []openflow.Flow { return s.portFlows(c) })
	}
	for _, c := range slices.SortedFunc(maps.Keys(s.dirty.pods), podClause.compare) {
		s.set(c.key(), s.podUsed(c), func() []openflow.Flow { return s.podFlows(c) })
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.dirty.rules), RuleID.Compare) {
		r := s.rules[id]
		s.set(ruleKey(id), r != nil && r.installed, func() []openflow.Flow { return s.ruleFlows(id) })
	}
	for _, name := range slices.Sorted(maps.Keys(s.dirty.closing)) {
		s.set(closingKey(name), s.pods[name] != nil, func() []openflow.Flow { return s.closingFlows(name) })
	}
	for _, name := range slices.Sorted(maps.Keys(s.dirty.rates)) {
		s.setRate(name)
	}
	s.dirty = newChanges()
}

func (s *Store) set(key string, wanted bool, render func() []openflow.Flow) {
	if wanted {
		s.flows.SetFlows(key, render)
	} else {
		s.flows.RemoveFlows(key)
	}
}
