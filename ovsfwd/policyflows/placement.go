package policyflows

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// placer finds the priorities of the rules.
type placer struct {
	*objects
	layers [layerCount]layerState
}

// layerState is the input for the priorities of a layer's rules.
type layerState struct {
	// rules counts those of an unordered layer, lanes the lanes they are in.
	rules, lanes int
	// stale says that priorities have to be found: for the waiting rules, or if the
	// layer is ordered, for all rules.
	stale   bool
	waiting []*rule
}

func newPlacer(o *objects) *placer {
	pl := &placer{objects: o}
	for l := range pl.layers {
		pl.layers[l].lanes = 1
	}
	return pl
}

// settleLayers finds the priorities of the rules where they may have changed, and moves their
// clauses.
func (pl *placer) settleLayers() {
	for l := range layerCount {
		if pl.layers[l].stale {
			pl.layers[l].stale = false
			pl.settleLayer(l)
		}
	}
}

// settleLayer finds the priorities of a layer's rules.
func (pl *placer) settleLayer(l layer) {
	state := &pl.layers[l]
	if !l.networkPolicies() {
		pl.settleOrdered(l)
		return
	}
	waiting, before := state.waiting, state.lanes
	state.waiting, state.lanes = nil, lanes(state.rules)
	moved := pl.portSets[l].settle()
	if moved {
		pl.dirty.portSets[l] = struct{}{}
	}
	if moved || state.lanes != before {
		for _, r := range pl.rules {
			if r.layer == l {
				pl.place(r, state.laneOf(r))
			}
		}
	}
	for _, r := range waiting {
		if pl.rules[r.RuleID] == r {
			pl.place(r, state.laneOf(r))
		}
	}
}

func (l *layerState) laneOf(r *rule) uint16 { return lanePriority(lane(r.RuleID, l.lanes)) }

// wait has settle find the priority of a rule.
func (pl *placer) wait(r *rule) {
	state := &pl.layers[r.layer]
	state.stale = true
	if r.layer.networkPolicies() {
		state.waiting = append(state.waiting, r)
	}
}

func (pl *placer) reconsider(p *policy) {
	for _, r := range p.rules {
		pl.wait(r)
	}
	pl.markPods(p)
}

func (pl *placer) settleOrdered(l layer) {
	var rules []*rule
	crowded := map[*policy]bool{}
	for _, p := range pl.policies {
		if layerOf(p.id.Tier, p.direction) != l {
			continue
		}
		if p.id.BeforeTiers() {
			for _, r := range p.rules {
				pl.place(r, priorityBeforeTiers(r.spec.Action))
			}
		} else {
			rules = append(rules, p.rules...)
			crowded[p] = false
		}
	}
	slices.SortFunc(rules, func(a, b *rule) int {
		return cmp.Or(a.policy.precedence.Compare(b.policy.precedence), a.RuleID.Compare(b.RuleID))
	})
	wishes := make([]ordered, len(rules))
	for i, r := range rules {
		wishes[i] = r.ordered()
	}
	priorities := l.order().assign(wishes)
	for i, r := range rules {
		crowded[r.policy] = crowded[r.policy] || priorities[i] == 0
	}
	for p, is := range crowded {
		if p.crowded != is {
			p.crowded = is
			pl.markPods(p)
		}
	}
	for i, r := range rules {
		pl.place(r, priorities[i])
	}
}

// priorityBeforeTiers returns the priority of a rule of a policy before all tiers.
func priorityBeforeTiers(a model.Action) uint16 {
	if a == model.Next {
		return priorityNext
	}
	return priorityIsolated
}

// place gives a rule its priority, and has its clauses there if they are to be
// anywhere.
func (pl *placer) place(r *rule, priority uint16) {
	used := r.matches() && !r.policy.quarantined() && priority > 0
	bit := uint32(0)
	if r.set != nil {
		bit = r.set.bit
	}
	if r.installed == used && r.priority == priority && r.bit == bit {
		return
	}
	pl.uninstall(r)
	r.priority, r.bit = priority, bit
	if used {
		pl.install(r)
	}
}
