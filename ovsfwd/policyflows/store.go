package policyflows

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// Options configure a store.
type Options struct {
	Flows Flows
	// HashID says where the id of a rule is looked for first; HashID if nil.
	HashID func(RuleID) uint32
	// BoundRates is the initial value of Store.BoundRates.
	BoundRates bool
}

// Store holds the rules, groups and pods that the flows of policy follow from.
// Its setters are cheap; Complete sets the flows of changed objects. It is not
// safe for concurrent use.
type Store struct {
	*objects
	flows      Flows
	ids        *ids
	placer     *placer
	quarantine *quarantine
	networks   *networkGroups
	renderer   *renderer
	rates      *rateLimit
}

// New returns a store without policies, for a node of no family.
func New(options Options) *Store {
	if options.HashID == nil {
		options.HashID = HashID
	}
	o := newObjects()
	pl := newPlacer(o)
	q := &quarantine{objects: o, placer: pl, refused: map[*policy]struct{}{}}
	o.dirty.base = true
	return &Store{
		objects: o, flows: options.Flows, ids: newIDs(options.HashID), placer: pl, quarantine: q,
		networks: &networkGroups{objects: o, placer: pl, quarantine: q, networks: map[model.GroupID]*networkGroup{}},
		renderer: &renderer{objects: o, answers: options.BoundRates, rejecting: map[RuleID]struct{}{}},
		rates:    &rateLimit{objects: o, flows: options.Flows, bounded: options.BoundRates, meters: map[string]uint32{}},
	}
}

// SetFamilies says in which families the node has pods: flows are rendered for
// these.
func (s *Store) SetFamilies(families []model.Family) {
	if slices.Equal(s.families, families) {
		return
	}
	s.families = slices.Clone(families)
	for _, r := range s.rules {
		s.markRule(r)
	}
	for l := range layerCount {
		s.dirty.portSets[l] = struct{}{}
	}
	for name := range s.pods {
		s.dirty.closing[name] = struct{}{}
	}
}

// Complete sets the flows of all changes, in a fixed order: it gives ids, weighs policies,
// finds priorities, and renders.
func (s *Store) Complete() {
	for _, id := range s.ids.settle() {
		s.number(s.rules[id])
	}
	s.networks.weigh()
	s.placer.settleLayers()
	s.setFlows()
	s.dirty = newChanges()
}

// setFlows sets the flows of all dirty objects.
func (s *Store) setFlows() {
	re := s.renderer
	if s.dirty.base {
		s.flows.SetFlows("denied", func() []openflow.Flow { return deniedFlows(re.deny()) })
		s.flows.SetFlows(JudgedKey, pipeline.Judged)
	}
	for _, c := range slices.SortedFunc(maps.Keys(s.dirty.members), memberClause.compare) {
		s.set(c.key(), re.memberUsed(c), func() []openflow.Flow { return re.memberFlows(c) })
	}
	for _, c := range slices.SortedFunc(maps.Keys(s.dirty.ports), portClause.compare) {
		s.set(c.key(), len(s.ports[c]) > 0, func() []openflow.Flow { return re.portFlows(c) })
	}
	for _, l := range slices.Sorted(maps.Keys(s.dirty.portSets)) {
		ps := &s.portSets[l]
		s.set(ps.flowsKey(), ps.users > 0, func() []openflow.Flow { return ps.flows(s.families) })
	}
	for _, c := range slices.SortedFunc(maps.Keys(s.dirty.pods), podClause.compare) {
		s.set(c.key(), re.podUsed(c), func() []openflow.Flow { return re.podFlows(c) })
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.dirty.rules), RuleID.Compare) {
		r := s.rules[id]
		used := r != nil && r.installed
		s.set(ruleKey(id), used, func() []openflow.Flow { return re.ruleFlows(id) })
	}
	for _, name := range slices.Sorted(maps.Keys(s.dirty.closing)) {
		s.set(closingKey(name), s.pods[name] != nil, func() []openflow.Flow { return re.closingFlows(name) })
	}
	for _, name := range slices.Sorted(maps.Keys(s.dirty.rates)) {
		s.rates.setPod(name)
	}
}

func (s *Store) set(key string, used bool, render func() []openflow.Flow) {
	if used {
		s.flows.SetFlows(key, render)
	} else {
		s.flows.RemoveFlows(key)
	}
}

// Report turns the reports of denied packets on or off. The switch has to have the meter
// before, and for as long.
func (s *Store) Report(reported bool) {
	if s.renderer.reported == reported {
		return
	}
	s.renderer.reported = reported
	s.dirty.base = true
	for name := range s.pods {
		s.dirty.closing[name] = struct{}{}
	}
	for id, r := range s.rules {
		if r.spec.Action.Denies() {
			s.dirty.rules[id] = struct{}{}
		}
	}
}

// BoundRates turns the limit for new connections on or off, and the answers to rejected packets,
// which need a meter as well. The switch must have the meters (RateMeters) before the limit is on, and until it is off.
func (s *Store) BoundRates(bounded bool) {
	s.rates.setBounded(bounded)
	if s.renderer.answers == bounded {
		return
	}
	s.renderer.answers = bounded
	for id := range s.renderer.rejecting {
		s.dirty.rules[id] = struct{}{}
	}
}

// RateMeters returns the meters that the flows name: those of pods, and RejectMeter.
func (s *Store) RateMeters() map[uint32]bool {
	all := s.rates.inUse()
	if s.Rejects() {
		all[RejectMeter] = true
	}
	return all
}

// Reported reports whether denied packets are reported.
func (s *Store) Reported() bool { return s.renderer.reported }

// renumber gives rules the ids that they have now.
func (s *Store) renumber(changed []RuleID) {
	for _, id := range changed {
		if r := s.rules[id]; r != nil {
			s.number(r)
			s.markRule(r)
		}
	}
}

// number gives a rule the id that it has now.
func (s *Store) number(r *rule) {
	r.id, r.displaced = s.ids.get(r.RuleID), s.ids.displaced(r.RuleID)
}

// Faults lists the policies that are closed though the switch has not refused them, with the
// direction and the reason, in order.
func (s *Store) Faults() []string {
	var all []string
	for _, p := range s.policies {
		if reason := p.fault(); reason != "" {
			all = append(all, p.String()+": "+reason)
		}
	}
	slices.Sort(all)
	return all
}
