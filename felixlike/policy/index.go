package policy

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/label"
)

// selectionIndex finds the classes of a selection and the selections of a class, as namespaces,
// classes and selections come and go. Neither direction looks at all classes or at all
// selections: indexes over labels find the candidates.
type selectionIndex struct {
	*matcher
	members    *membership
	namespaces map[string]*namespace
	// labelled finds namespaces by their labels.
	labelled label.Index[*namespace]
	// scopes are those of namespaceSelectors. scopeIndex finds them by the labels of a
	// namespace.
	scopes     map[*label.Selector]*scope
	scopeIndex label.SelectorIndex[*scope]
	// classes finds the classes of all namespaces by their labels.
	classes label.Index[*class]
}

func newSelectionIndex(m *matcher, members *membership) *selectionIndex {
	return &selectionIndex{matcher: m, members: members, namespaces: map[string]*namespace{}, scopes: map[*label.Selector]*scope{}}
}

// firstHost returns the first pod by name, of a class with such pods, in the network of its host.
func (x *selectionIndex) firstHost(c *class) *pod {
	if c.firstHost == nil {
		x.work.Visits += uint64(len(c.pods[host]))
		c.firstHost = slices.MinFunc(c.pods[host], func(a, b *pod) int { return a.id.Compare(b.id) })
	}
	return c.firstHost
}

// namespace returns a namespace, and creates it if it does not exist.
func (x *selectionIndex) namespace(name string) *namespace {
	n, ok := x.namespaces[name]
	if !ok {
		n = &namespace{name: name}
		x.namespaces[name] = n
	}
	return n
}

func (x *selectionIndex) dropNamespaceIfEmpty(n *namespace) {
	if n.empty() {
		delete(x.namespaces, n.name)
	}
}
