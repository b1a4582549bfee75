package policyflows

import "github.com/felixlike/felixlike/model"

// Many rules of an ordered tier share priorities. The order of two rules matters only if
// they have different actions and one packet can match both. So a rule must be below such
// an earlier rule, and not above an earlier one with the same action; nothing else bounds
// it. Two rules have no packet in common if their ports differ, or if they apply to
// the pods of different namespaces. Peers do not count: an address may join any group.

// shareSteps are the distances of shared priorities, widest first. A rule takes the
// widest one that the order allows, so an inserted rule moves few of the others.
func shareSteps() []int { return []int{2048, 128, 16, 1} }

// share returns priorities of rules that are given in their order: each near the one
// that the rule wishes, or if a rule has no room there, as high as the order allows. Zero is for those
// that there is no room for at all.
func (t orderedTier) share(rules []ordered) []uint16 {
	near := func(r ordered, bound int) int {
		wish := t.wish(r)
		for _, step := range shareSteps() {
			if p := min((wish+step-1)/step*step, t.highest); p <= bound {
				return p
			}
		}
		return bound
	}
	if priorities, room := t.place(rules, near); room {
		return priorities
	}
	priorities, _ := t.place(rules, func(_ ordered, bound int) int { return bound })
	return priorities
}

// place gives each rule the priority that choose returns for it, which is at most the
// bound that follows from the earlier rules, or the next lower one that has room for
// a rule. It reports whether all rules have a priority.
func (t orderedTier) place(rules []ordered, choose func(r ordered, bound int) int) (priorities []uint16, all bool) {
	priorities, all = make([]uint16, len(rules)), true
	earlier, used := newEarlier(), map[int]int{}
	for i, r := range rules {
		p := choose(r, min(earlier.bound(r), t.highest))
		for p > 0 && used[p] == laneSize {
			p--
		}
		if p < 1 {
			all = false
			continue // its pods are closed, so it bounds no other rule
		}
		used[p]++
		priorities[i] = uint16(p)
		earlier.add(r, priorities[i])
	}
	return priorities, all
}

// ordered returns how the rule stands in the order of its tier.
func (r *rule) ordered() ordered {
	o := ordered{precedence: r.policy.precedence, index: r.Index, action: r.spec.Action, within: r.Policy.Within}
	if !r.spec.AnyPort && len(r.spec.NamedPorts) == 0 {
		o.ports = r.ports
	}
	return o
}

// earlier has the rules that have a priority, to find the bound of the next one.
type earlier struct {
	// all has every rule, anywhere those about pods of any namespace, within those about the
	// pods of one.
	all, anywhere *classes
	within        map[string]*classes
}

func newEarlier() *earlier {
	return &earlier{all: newClasses(), anywhere: newClasses(), within: map[string]*classes{}}
}

func (e *earlier) add(r ordered, priority uint16) {
	among := e.anywhere
	if r.within != "" {
		if among = e.within[r.within]; among == nil {
			among = newClasses()
			e.within[r.within] = among
		}
	}
	for _, i := range intervals(r.ports) {
		e.all.add(everyClass(), i, r.action, priority)
		among.add(everyClass(), i, r.action, priority)
	}
}

// bound returns the highest priority that the order allows for the next rule.
func (e *earlier) bound(r ordered) int {
	least := noLeast()
	for _, i := range intervals(r.ports) {
		if r.within == "" {
			e.all.find(everyClass(), i, &least)
			continue
		}
		e.anywhere.find(everyClass(), i, &least)
		e.within[r.within].find(everyClass(), i, &least)
	}
	bound := int(least[r.action])
	for action, p := range least {
		if model.Action(action) != r.action {
			bound = min(bound, int(p)-1)
		}
	}
	return bound
}
