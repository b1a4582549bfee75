package policy

import (
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
)

// selection is the classes of one selectionSpec, with everything that follows
// from a pod entering or leaving them.
type selection struct {
	scope   *scope
	pods    *label.Selector
	classes smallmap.Set[*class]
	// locals counts the local pods of the classes.
	locals int
	// addresses and ports are the groups over the pods.
	addresses *group
	ports     smallmap.Map[compile.PortName, *group]
	// policies are those that apply to the pods; applied lists them for pods
	// that no other selection applies policies to. While the selection is
	// stale, the lists of its classes are too.
	policies smallmap.Set[*policy]
	applied  *applied
	stale    bool
}

func (s *selection) used() bool {
	return s.addresses != nil || s.ports.Len() > 0 || s.policies.Len() > 0
}

// selection returns the selection of a spec; a new one is filled at once.
func (e *Engine) selection(spec compile.Selection) *selection {
	sc := e.scope(spec)
	if s := sc.selections.Get(spec.Pods); s != nil {
		return s
	}
	s := &selection{scope: sc, pods: e.selectors.Hold(spec.Pods)}
	sc.selections.Put(s.pods, s)
	sc.index.Insert(s.pods, s)
	e.fillSelection(s)
	return s
}

// fillSelection finds the classes of a new selection: namespace by namespace,
// or, where its labels are rarer than its namespaces are, by label.
func (e *Engine) fillSelection(s *selection) {
	sc := s.scope
	if e.classes.AtMost(s.pods) < sc.members.Len() {
		e.classes.Candidates(s.pods, func(c *class) {
			e.work.Visits++
			if c.namespace.scopes.Has(sc) && e.matches(s.pods, c.labels) {
				e.join(s, c)
			}
		})
		return
	}
	for n := range sc.members.All() {
		e.work.Visits++
		e.classesIn(n, s, func(c *class) { e.join(s, c) })
	}
}

// dropIfUnused forgets a selection that nothing needs, and its scope with the
// last one.
func (e *Engine) dropIfUnused(s *selection) {
	if s.used() {
		return
	}
	for c := range s.classes.All() {
		e.part(s, c)
	}
	sc := s.scope
	sc.selections.Remove(s.pods)
	sc.index.Remove(s.pods, s)
	e.selectors.Release(s.pods)
	if sc.selections.Len() == 0 {
		e.dropScope(sc)
	}
}

// join puts a class into a selection; part takes it out.
func (e *Engine) join(s *selection, c *class) {
	s.classes.Add(c)
	c.selections.Add(s)
	e.moved(s, c, 1)
}

func (e *Engine) part(s *selection, c *class) {
	s.classes.Remove(c)
	c.selections.Remove(s)
	e.moved(s, c, -1)
}

func (e *Engine) moved(s *selection, c *class, n int32) {
	if s.policies.Len() > 0 || s.stale {
		e.staleClass(c)
	}
	e.countLocals(s, int(n)*len(c.pods[local]))
	if s.addresses == nil && s.ports.Len() == 0 {
		return
	}
	e.podsOf(c, func(p *pod) { e.count(s, &p.podState, n) })
}

// countLocals counts local pods of a selection. Its policies apply here from
// the first one to the last.
func (e *Engine) countLocals(s *selection, n int) {
	before := s.locals
	s.locals += n
	if before > 0 == (s.locals > 0) {
		return
	}
	for p := range s.policies.All() {
		e.dirtyPolicy(p)
	}
}

// count adds the pod's members to the selection's groups, or takes them away.
func (e *Engine) count(s *selection, p *podState, n int32) {
	if s.addresses != nil {
		e.countAddresses(s.addresses, p, n)
	}
	if s.ports.Len() == 0 {
		return
	}
	for _, port := range p.ports {
		if g := s.ports.Get(port.PortName); g != nil {
			e.countPort(g, p, port.number, n)
		}
	}
}

// podsOf visits the pods of a class that are members of groups.
func (e *Engine) podsOf(c *class, visit func(*pod)) {
	for _, pods := range [...][]*pod{c.pods[remote], c.pods[local]} {
		e.work.Visits += uint64(len(pods))
		for _, p := range pods {
			visit(p)
		}
	}
}
