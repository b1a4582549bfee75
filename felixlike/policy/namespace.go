package policy

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
)

// namespace is what the engine keeps of a namespace: its labels, if the
// object is known, and its pods by label.
type namespace struct {
	name string
	// labels are those of the Namespace object, or nil if it was not seen.
	// Without it no namespaceSelector matches, not even the empty one:
	// guessing at absent labels could widen a policy.
	labels  *label.Set
	classes smallmap.Map[*label.Set, *class]
	byLabel label.Index[*class]
	// hosts are the classes with pods in a host's network.
	hosts smallmap.Set[*class]
	// scopes are those that the namespace lies in; own is the one that is
	// just this namespace, if a policy needs it.
	scopes smallmap.Set[*scope]
	own    *scope
}

// empty reports whether nothing needs the namespace any more.
func (n *namespace) empty() bool { return n.labels == nil && n.classes.Len() == 0 && n.own == nil }

// SetNamespace creates or replaces a namespace.
func (e *Engine) SetNamespace(object *corev1.Namespace) {
	if object == nil {
		return
	}
	// The API server gives every namespace the label of its name; an object
	// that comes from a file has it too.
	labels := map[string]string{corev1.LabelMetadataName: object.Name}
	maps.Copy(labels, object.Labels)
	e.relabel(e.namespace(object.Name), e.labelSets.Intern(labels))
}

// DeleteNamespace removes a namespace. Its pods and policies are deleted one
// by one as they go.
func (e *Engine) DeleteNamespace(name string) {
	if n, ok := e.namespaces[name]; ok {
		e.relabel(n, nil)
		e.dropNamespaceIfEmpty(n)
	}
}

// namespace returns the record of a namespace and makes one if there is none.
func (e *Engine) namespace(name string) *namespace {
	n, ok := e.namespaces[name]
	if !ok {
		n = &namespace{name: name}
		e.namespaces[name] = n
	}
	return n
}

func (e *Engine) dropNamespaceIfEmpty(n *namespace) {
	if n.empty() {
		delete(e.namespaces, n.name)
	}
}

// relabel gives a namespace other labels, nil for none, and moves it into and
// out of the scopes of namespaceSelectors.
func (e *Engine) relabel(n *namespace, labels *label.Set) {
	old := n.labels
	if old == labels {
		return
	}
	n.labels = labels
	if old != nil {
		e.labelled.Remove(old, n)
	}
	if labels != nil {
		e.labelSets.Hold(labels)
		e.labelled.Insert(labels, n)
		e.scopeIndex.Candidates(labels, func(sc *scope) {
			if !n.scopes.Has(sc) && e.matches(sc.namespaces, labels) {
				e.addNamespace(sc, n)
			}
		})
	}
	for sc := range n.scopes.All() {
		if sc != n.own && (labels == nil || !e.matches(sc.namespaces, labels)) {
			e.removeNamespace(sc, n)
		}
	}
	if old != nil {
		e.labelSets.Release(old)
	}
}
