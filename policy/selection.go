package policy

import (
	"fmt"

	"github.com/felixlike/felixlike/model"
)

// selectionSpec says which pods a selection has: those that the pod selector
// matches in one namespace (byName), or in the namespaces that a selector
// matches. A local one has this node's pods only.
type selectionSpec struct {
	byName     bool
	namespace  string
	namespaces selector
	pods       selector
	local      bool
}

// String returns the selection in words.
func (s selectionSpec) String() string {
	pods, where := "pods "+s.pods.text, "namespace "+s.namespace
	if s.pods.text == everything {
		pods = "all pods"
	}
	switch {
	case s.byName:
	case s.namespaces.text == everything:
		where = "all namespaces"
	default:
		where = "namespaces " + s.namespaces.text
	}
	return pods + " in " + where
}

// key returns a text that is equal for equal selections only. Namespace names
// are quoted because nobody has validated them.
func (s selectionSpec) key() string {
	return fmt.Sprintf("%v %q %s %s", s.byName, s.namespace, s.namespaces.text, s.pods.text)
}

// scope is a set of namespaces with the selections that look into them.
type scope struct {
	scopeKey
	namespaces selector
	members    set[*namespace]
	selections map[string]*selection
	index      selectorIndex[*selection]
}

type scopeKey struct {
	byName     bool
	namespace  string
	namespaces string
	local      bool
}

func (s selectionSpec) scopeKey() scopeKey {
	return scopeKey{s.byName, s.namespace, s.namespaces.text, s.local}
}

// selection is the set of pods of one selectionSpec, with everything that
// follows from a pod entering or leaving it.
type selection struct {
	scope   *scope
	pods    selector
	members set[*pod]
	// addresses and ports are the groups over the members.
	addresses *group
	ports     map[portName]*group
	// policies are those that apply to the members; local selections only.
	policies set[*policy]
	// mark is the number of the last pod change that this selection matched.
	mark uint64
}

func (s *selection) used() bool {
	return s.addresses != nil || len(s.ports) > 0 || len(s.policies) > 0
}

// visit calls fn for every pod of a namespace of the scope that the selection
// matches, without looking at others more than it must.
func (e *Engine) visit(s *selection, n *namespace, fn func(*pod)) {
	pairs := s.pods.required()
	if len(pairs) == 0 {
		pods := n.pods
		if s.scope.local {
			pods = n.locals
		}
		e.visitMatching(s, pods, fn)
		return
	}
	for _, pair := range pairs {
		e.visitMatching(s, n.byLabel[pair], fn)
	}
}

func (e *Engine) visitMatching(s *selection, pods set[*pod], fn func(*pod)) {
	e.work.Visits += uint64(len(pods))
	e.work.Matches += uint64(len(pods))
	for p := range pods {
		if (p.local || !s.scope.local) && s.pods.matches(p.labels) {
			fn(p)
		}
	}
}

// selection returns the selection of a spec; a new one is filled at once.
func (e *Engine) selection(spec selectionSpec) *selection {
	sc := e.scope(spec)
	if s, ok := sc.selections[spec.pods.text]; ok {
		return s
	}
	s := &selection{scope: sc, pods: spec.pods, members: set[*pod]{}, ports: map[portName]*group{}, policies: set[*policy]{}}
	sc.selections[spec.pods.text] = s
	sc.index.insert(s.pods, s)
	for n := range sc.members {
		e.visit(s, n, func(p *pod) { e.enter(s, p) })
	}
	return s
}

func (e *Engine) scope(spec selectionSpec) *scope {
	key := spec.scopeKey()
	if s, ok := e.scopes[key]; ok {
		return s
	}
	s := &scope{
		scopeKey: key, namespaces: spec.namespaces, members: set[*namespace]{},
		selections: map[string]*selection{}, index: newSelectorIndex[*selection](),
	}
	e.scopes[key] = s
	if s.byName {
		n := e.namespace(spec.namespace)
		n.scopes.add(s)
		s.members.add(n)
		return s
	}
	e.scopesByLabel.insert(s.namespaces, s)
	e.work.Visits += uint64(len(e.namespaces))
	e.work.Matches += uint64(len(e.namespaces))
	for _, n := range e.namespaces {
		if n.known && s.namespaces.matches(n.labels) {
			n.scopes.add(s)
			s.members.add(n)
		}
	}
	return s
}

// dropIfUnused forgets a selection that nothing needs, and its scope with the
// last one.
func (e *Engine) dropIfUnused(s *selection) {
	if s.used() {
		return
	}
	for p := range s.members {
		e.leave(s, p)
	}
	sc := s.scope
	delete(sc.selections, s.pods.text)
	sc.index.remove(s.pods, s)
	if len(sc.selections) > 0 {
		return
	}
	delete(e.scopes, sc.scopeKey)
	if !sc.byName {
		e.scopesByLabel.remove(sc.namespaces, sc)
	}
	for n := range sc.members {
		delete(n.scopes, sc)
		e.dropNamespaceIfEmpty(n)
	}
}

// enter puts a pod into a selection; leave takes it out.
func (e *Engine) enter(s *selection, p *pod) {
	s.members.add(p)
	p.selections = append(p.selections, s)
	e.contribute(s, &p.podState, 1)
	e.targetsChanged(s, p.id)
}

func (e *Engine) leave(s *selection, p *pod) {
	delete(s.members, p)
	for i, o := range p.selections {
		if o == s {
			last := len(p.selections) - 1
			p.selections[i], p.selections[last] = p.selections[last], nil
			p.selections = p.selections[:last]
			break
		}
	}
	e.contribute(s, &p.podState, -1)
	e.targetsChanged(s, p.id)
}

// targetsChanged notes what follows when a pod entered or left a selection
// that policies have for target.
func (e *Engine) targetsChanged(s *selection, id model.PodID) {
	if len(s.policies) == 0 {
		return
	}
	e.dirtyEndpoints.add(id)
	if len(s.members) > 1 {
		return // the policies applied here before and still do
	}
	for p := range s.policies {
		e.dirtyPolicies.add(p)
	}
}

// contribute adds the pod's members to the selection's groups, or takes them
// away.
func (e *Engine) contribute(s *selection, p *podState, n int32) {
	if s.addresses != nil {
		e.work.Members += uint64(len(p.addresses))
		s.addresses.countAddresses(p, n)
	}
	if len(s.ports) == 0 {
		return
	}
	for _, port := range p.ports {
		if g := s.ports[port.portName]; g != nil {
			e.work.Members += uint64(len(p.addresses))
			g.countPort(p, port.number, n)
		}
	}
}
