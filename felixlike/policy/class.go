package policy

import "github.com/felixlike/felixlike/felixlike/policy/label"

// class returns the class of the pods with these labels. It puts a new one into its
// selections.
func (x *selectionIndex) class(n *namespace, labels *label.Set) *class {
	if c := n.classes.Get(labels); c != nil {
		return c
	}
	x.labelSets.Hold(labels)
	c := &class{namespace: n, labels: labels, stale: true}
	n.classes.Put(labels, c)
	n.byLabel.Insert(labels, c)
	x.classes.Insert(labels, c)
	for sc := range n.scopes.All() {
		x.work.Visits++
		sc.index.Candidates(labels, func(s *selection) {
			if x.matches(s.pods, labels) {
				x.members.join(s, c)
			}
		})
	}
	return c
}

func (x *selectionIndex) dropClassIfEmpty(c *class) {
	if !c.empty() {
		return
	}
	for s := range c.selections.All() {
		x.members.part(s, c)
	}
	n := c.namespace
	n.classes.Remove(c.labels)
	n.byLabel.Remove(c.labels, c)
	x.classes.Remove(c.labels, c)
	x.labelSets.Release(c.labels)
	x.dropNamespaceIfEmpty(n)
}
