package policy

import "github.com/felixlike/felixlike/felixlike/policy/compile"

// selection returns the selection of a spec. It creates and fills it if it does not exist.
func (x *selectionIndex) selection(spec compile.Selection) *selection {
	sc := x.scope(spec)
	if s := sc.selections.Get(spec.Pods); s != nil {
		return s
	}
	s := &selection{scope: sc, pods: x.selectors.Hold(spec.Pods)}
	sc.selections.Put(s.pods, s)
	sc.index.Insert(s.pods, s)
	x.fillSelection(s)
	return s
}

// fillSelection finds the classes of a new selection: in each namespace of its scope, or,
// if fewer classes have its labels than the scope has namespaces, by label.
func (x *selectionIndex) fillSelection(s *selection) {
	sc := s.scope
	if x.classes.AtMost(s.pods) < sc.members.Len() {
		x.classes.Candidates(s.pods, func(c *class) {
			x.work.Visits++
			if c.namespace.scopes.Has(sc) && x.matches(s.pods, c.labels) {
				x.members.join(s, c)
			}
		})
		return
	}
	for n := range sc.members.All() {
		x.work.Visits++
		x.classesIn(n, s, func(c *class) { x.members.join(s, c) })
	}
}

// dropIfUnused removes a selection without groups and policies, and its scope with the last
// selection.
func (x *selectionIndex) dropIfUnused(s *selection) {
	if s.used() {
		return
	}
	for c := range s.classes.All() {
		x.members.part(s, c)
	}
	sc := s.scope
	sc.selections.Remove(s.pods)
	sc.index.Remove(s.pods, s)
	x.selectors.Release(s.pods)
	if sc.selections.Len() == 0 {
		x.dropScope(sc)
	}
}
