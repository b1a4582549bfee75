package policy

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// namespace is what the engine keeps of a namespace: its labels, if the
// object is known, and its pods by label.
type namespace struct {
	name string
	// known tells whether the Namespace object was seen. Without it no
	// namespaceSelector matches, not even the empty one: guessing at absent
	// labels could widen a policy.
	known  bool
	labels map[string]string
	// pods are those that can be selected; locals are those of them on this
	// node; hosts are those in a host's network, which never can.
	pods, locals, hosts set[*pod]
	byLabel             map[label]set[*pod]
	// scopes are those that the namespace lies in.
	scopes set[*scope]
}

func newNamespace(name string) *namespace {
	return &namespace{
		name: name, pods: set[*pod]{}, locals: set[*pod]{}, hosts: set[*pod]{},
		byLabel: map[label]set[*pod]{}, scopes: set[*scope]{},
	}
}

// index files a pod under its state; unindex undoes it.
func (n *namespace) index(p *pod) {
	if p.hostNetwork {
		n.hosts.add(p)
	}
	if !p.selectable {
		return
	}
	n.pods.add(p)
	if p.local {
		n.locals.add(p)
	}
	for k, v := range p.labels {
		addTo(n.byLabel, label{k, v}, p)
	}
}

func (n *namespace) unindex(p *pod) {
	delete(n.hosts, p)
	if !p.selectable {
		return
	}
	delete(n.pods, p)
	delete(n.locals, p)
	for k, v := range p.labels {
		dropFrom(n.byLabel, label{k, v}, p)
	}
}

// empty reports whether nothing needs the namespace any more.
func (n *namespace) empty() bool {
	return !n.known && len(n.pods) == 0 && len(n.hosts) == 0 && len(n.scopes) == 0
}

// SetNamespace creates or replaces a namespace.
func (e *Engine) SetNamespace(object *corev1.Namespace) {
	if object == nil {
		return
	}
	// The API server gives every namespace the label of its name; an object
	// that comes from a file has it too.
	labels := map[string]string{corev1.LabelMetadataName: object.Name}
	maps.Copy(labels, object.Labels)
	n := e.namespace(object.Name)
	if n.known && maps.Equal(n.labels, labels) {
		return
	}
	n.known, n.labels = true, labels
	e.rescope(n)
}

// DeleteNamespace removes a namespace. Its pods and policies are deleted one
// by one as they go.
func (e *Engine) DeleteNamespace(name string) {
	n, ok := e.namespaces[name]
	if !ok {
		return
	}
	n.known, n.labels = false, nil
	e.rescope(n)
	e.dropNamespaceIfEmpty(n)
}

// namespace returns the record of a namespace and makes one if there is none.
func (e *Engine) namespace(name string) *namespace {
	n, ok := e.namespaces[name]
	if !ok {
		n = newNamespace(name)
		e.namespaces[name] = n
	}
	return n
}

func (e *Engine) dropNamespaceIfEmpty(n *namespace) {
	if n.empty() {
		delete(e.namespaces, n.name)
	}
}

// rescope finds the scopes of namespaceSelectors that the namespace now lies
// in, and moves its pods into and out of their selections.
func (e *Engine) rescope(n *namespace) {
	now := set[*scope]{}
	if n.known {
		e.scopesByLabel.candidates(n.labels, func(s *scope) {
			e.work.Matches++
			if s.namespaces.matches(n.labels) {
				now.add(s)
			}
		})
	}
	for s := range n.scopes {
		if s.byName || now.has(s) {
			continue
		}
		delete(n.scopes, s)
		delete(s.members, n)
		for _, sel := range s.selections {
			e.visit(sel, n, func(p *pod) { e.leave(sel, p) })
		}
	}
	for s := range now {
		if n.scopes.has(s) {
			continue
		}
		n.scopes.add(s)
		s.members.add(n)
		for _, sel := range s.selections {
			e.visit(sel, n, func(p *pod) { e.enter(sel, p) })
		}
	}
}
