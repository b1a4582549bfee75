package policy

import "github.com/felixlike/felixlike/felixlike/policy/label"

// relabel sets the labels of a namespace, or removes them if they are nil. It adds the
// namespace to the scopes of namespaceSelectors, and removes it from them.
func (x *selectionIndex) relabel(n *namespace, labels *label.Set) {
	old := n.labels
	if old == labels {
		return
	}
	n.labels = labels
	if old != nil {
		x.labelled.Remove(old, n)
	}
	if labels != nil {
		x.labelSets.Hold(labels)
		x.labelled.Insert(labels, n)
		x.scopeIndex.Candidates(labels, func(sc *scope) {
			if !n.scopes.Has(sc) && x.matches(sc.namespaces, labels) {
				x.addNamespace(sc, n)
			}
		})
	}
	for sc := range n.scopes.All() {
		if sc != n.own && (labels == nil || !x.matches(sc.namespaces, labels)) {
			x.removeNamespace(sc, n)
		}
	}
	if old != nil {
		x.labelSets.Release(old)
	}
}
