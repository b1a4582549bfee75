package policy

import "github.com/felixlike/felixlike/felixlike/policy/compile"

// scope returns the scope of a selection, and creates it if it does not exist.
func (x *selectionIndex) scope(spec compile.Selection) *scope {
	if spec.Namespaces == nil {
		n := x.namespace(spec.Namespace)
		if n.own == nil {
			n.own = &scope{}
			n.own.members.Add(n)
			n.scopes.Add(n.own)
		}
		return n.own
	}
	if sc := x.scopes[spec.Namespaces]; sc != nil {
		return sc
	}
	sc := &scope{namespaces: x.selectors.Hold(spec.Namespaces)}
	x.scopes[sc.namespaces] = sc
	x.scopeIndex.Insert(sc.namespaces, sc)
	visit := func(n *namespace) {
		x.work.Visits++
		if n.labels != nil && x.matches(sc.namespaces, n.labels) {
			sc.members.Add(n)
			n.scopes.Add(sc)
		}
	}
	if !x.labelled.Candidates(sc.namespaces, visit) {
		for _, n := range x.namespaces {
			visit(n)
		}
	}
	return sc
}

func (x *selectionIndex) dropScope(sc *scope) {
	for n := range sc.members.All() {
		n.scopes.Remove(sc)
		if n.own == sc {
			n.own = nil
			x.dropNamespaceIfEmpty(n)
		}
	}
	if sc.namespaces != nil {
		delete(x.scopes, sc.namespaces)
		x.scopeIndex.Remove(sc.namespaces, sc)
		x.selectors.Release(sc.namespaces)
	}
}

// addNamespace adds a namespace and its pods to a scope, and removeNamespace removes them.
func (x *selectionIndex) addNamespace(sc *scope, n *namespace) {
	sc.members.Add(n)
	n.scopes.Add(sc)
	x.pairs(sc, n, func(s *selection, c *class) { x.members.join(s, c) })
}

func (x *selectionIndex) removeNamespace(sc *scope, n *namespace) {
	sc.members.Remove(n)
	n.scopes.Remove(sc)
	x.pairs(sc, n, func(s *selection, c *class) { x.members.part(s, c) })
}

// pairs visits each pair of a selection of the scope and a class of the namespace that
// match. Its outer loop is over the fewer of both.
func (x *selectionIndex) pairs(sc *scope, n *namespace, visit func(*selection, *class)) {
	if n.classes.Len() > sc.selections.Len() {
		for _, s := range sc.selections.All() {
			x.work.Visits++
			x.classesIn(n, s, func(c *class) { visit(s, c) })
		}
		return
	}
	for _, c := range n.classes.All() {
		x.work.Visits++
		sc.index.Candidates(c.labels, func(s *selection) {
			if x.matches(s.pods, c.labels) {
				visit(s, c)
			}
		})
	}
}

// classesIn visits the classes of a namespace that a selection matches.
func (x *selectionIndex) classesIn(n *namespace, s *selection, visit func(*class)) {
	match := func(c *class) {
		x.work.Visits++
		if x.matches(s.pods, c.labels) {
			visit(c)
		}
	}
	if !n.byLabel.Candidates(s.pods, match) {
		for _, c := range n.classes.All() {
			match(c)
		}
	}
}
