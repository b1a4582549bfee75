package policy

import (
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
)

// scope is a set of namespaces with the selections that look into them: one
// namespace by its name, or those that a namespaceSelector matches.
type scope struct {
	// namespaces is nil where the scope is one namespace by its name.
	namespaces *label.Selector
	members    smallmap.Set[*namespace]
	selections smallmap.Map[*label.Selector, *selection]
	index      label.SelectorIndex[*selection]
}

// scope returns the scope of a spec, and makes it if there is none.
func (e *Engine) scope(spec compile.Selection) *scope {
	if spec.Namespaces == nil {
		n := e.namespace(spec.Namespace)
		if n.own == nil {
			n.own = &scope{}
			n.own.members.Add(n)
			n.scopes.Add(n.own)
		}
		return n.own
	}
	if sc := e.scopes[spec.Namespaces]; sc != nil {
		return sc
	}
	sc := &scope{namespaces: e.selectors.Hold(spec.Namespaces)}
	e.scopes[sc.namespaces] = sc
	e.scopeIndex.Insert(sc.namespaces, sc)
	visit := func(n *namespace) {
		e.work.Visits++
		if n.labels != nil && e.matches(sc.namespaces, n.labels) {
			sc.members.Add(n)
			n.scopes.Add(sc)
		}
	}
	if !e.labelled.Candidates(sc.namespaces, visit) {
		for _, n := range e.namespaces {
			visit(n)
		}
	}
	return sc
}

func (e *Engine) dropScope(sc *scope) {
	for n := range sc.members.All() {
		n.scopes.Remove(sc)
		if n.own == sc {
			n.own = nil
			e.dropNamespaceIfEmpty(n)
		}
	}
	if sc.namespaces != nil {
		delete(e.scopes, sc.namespaces)
		e.scopeIndex.Remove(sc.namespaces, sc)
		e.selectors.Release(sc.namespaces)
	}
}

// addNamespace puts a namespace into a scope with all its pods, and
// removeNamespace takes it out.
func (e *Engine) addNamespace(sc *scope, n *namespace) {
	sc.members.Add(n)
	n.scopes.Add(sc)
	e.meetings(sc, n, func(s *selection, c *class) { e.join(s, c) })
}

func (e *Engine) removeNamespace(sc *scope, n *namespace) {
	sc.members.Remove(n)
	n.scopes.Remove(sc)
	e.meetings(sc, n, func(s *selection, c *class) { e.part(s, c) })
}

// meetings visits the pairs of a selection of the scope and a class of the
// namespace that match. It begins with what is fewer.
func (e *Engine) meetings(sc *scope, n *namespace, visit func(*selection, *class)) {
	if n.classes.Len() > sc.selections.Len() {
		for _, s := range sc.selections.All() {
			e.work.Visits++
			e.classesIn(n, s, func(c *class) { visit(s, c) })
		}
		return
	}
	for _, c := range n.classes.All() {
		e.work.Visits++
		sc.index.Candidates(c.labels, func(s *selection) {
			if e.matches(s.pods, c.labels) {
				visit(s, c)
			}
		})
	}
}

// classesIn visits the classes of a namespace that a selection matches.
func (e *Engine) classesIn(n *namespace, s *selection, visit func(*class)) {
	match := func(c *class) {
		e.work.Visits++
		if e.matches(s.pods, c.labels) {
			visit(c)
		}
	}
	if !n.byLabel.Candidates(s.pods, match) {
		for _, c := range n.classes.All() {
			match(c)
		}
	}
}
