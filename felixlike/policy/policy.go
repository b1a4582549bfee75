package policy

import (
	"reflect"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// policy is a NetworkPolicy or a ClusterNetworkPolicy on its way from the object to the model.
type policy struct {
	id model.PolicyID
	// compiled is what the object says now; nil once it was deleted.
	compiled *compile.Policy
	// target is the selection of the pods that the policy applies to.
	target *selection
	// emitted is the policy of the last Flush, compiled from the object that
	// source is, whose groups are acquired. Source is closed if a group of compiled has
	// the identifier of another one.
	emitted *model.Policy
	source  *compile.Policy
	// dirty tells whether the policy is among Engine.dirtyPolicies.
	dirty bool
}

// applies reports whether the policy applies to a local endpoint.
func (p *policy) applies() bool {
	return p.compiled != nil && (p.compiled.Ingress || p.compiled.Egress) && p.target.locals > 0
}

// SetNetworkPolicy creates or replaces a NetworkPolicy, and reports what in
// it cannot be understood. Such a part allows nothing; the pods are isolated
// all the same.
func (e *Engine) SetNetworkPolicy(object *networkingv1.NetworkPolicy) []model.Problem {
	if object == nil {
		return nil
	}
	e.work.Policies++
	c, problems := compile.NetworkPolicy(object, e.groupIDs)
	e.setPolicy(c)
	return problems
}

// SetClosedNetworkPolicy puts in place of a NetworkPolicy that could not be
// decoded one that isolates, in both directions and without rules, the pods
// that the selector matches, or all of the namespace if it is nil or invalid.
func (e *Engine) SetClosedNetworkPolicy(namespace, name string, podSelector *metav1.LabelSelector) {
	e.setPolicy(compile.ClosedNetworkPolicy(namespace, name, podSelector))
}

// DeleteNetworkPolicy removes a NetworkPolicy.
func (e *Engine) DeleteNetworkPolicy(namespace, name string) {
	e.deletePolicy(model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: namespace, Name: name})
}

func (e *Engine) deletePolicy(id model.PolicyID) {
	if p, ok := e.policies[id]; ok && p.compiled != nil {
		old := p.compiled
		p.compiled = nil
		e.retarget(p, nil)
		e.releaseSelectors(old)
	}
}

// HostNetworkTargets returns, sorted, the pods in a host's network that the
// policy's selector matches: policy does not apply to them, which their
// owners may not expect.
func (e *Engine) HostNetworkTargets(namespace, name string) []model.PodID {
	p, ok := e.policies[model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: namespace, Name: name}]
	if !ok || p.compiled == nil {
		return nil
	}
	var ids []model.PodID
	// Asked for each policy, and most namespaces have no such pods.
	for c := range e.namespaces[namespace].hosts.All() {
		if !p.target.classes.Has(c) {
			continue
		}
		for _, h := range c.pods[host] {
			ids = append(ids, h.id)
		}
	}
	slices.SortFunc(ids, model.PodID.Compare)
	return ids
}

// UnresolvedPorts returns, sorted, the named ports of a policy that applies to
// endpoints of this node which no pod that they are looked for in declares: the
// rules allow nothing to them, which their authors may not expect.
func (e *Engine) UnresolvedPorts(namespace, name string) []string {
	p, ok := e.policies[model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: namespace, Name: name}]
	if !ok || p.source == nil {
		return nil
	}
	resolved := map[compile.PortName]bool{}
	for i := range p.source.Groups {
		if spec := &p.source.Groups[i]; spec.Kind == model.AddressPorts {
			resolved[spec.Port] = resolved[spec.Port] || e.groups[spec.ID].counts.Len() > 0
		}
	}
	var names []string
	for port, found := range resolved {
		if !found {
			names = append(names, port.String())
		}
	}
	slices.Sort(names)
	return names
}

func (e *Engine) setPolicy(c *compile.Policy) {
	id := c.Model.ID
	p, ok := e.policies[id]
	if !ok {
		p = &policy{id: id}
		e.policies[id] = p
	}
	e.holdSelectors(c)
	old := p.compiled
	if old != nil && reflect.DeepEqual(old, c) {
		e.releaseSelectors(c)
		return
	}
	p.compiled = c
	target := e.selection(c.Target)
	if old != nil && target == p.target && old.Ingress == c.Ingress && old.Egress == c.Egress && old.Model.Precedence == c.Model.Precedence {
		e.dirtyPolicy(p) // the same lists for the same endpoints
	} else {
		e.retarget(p, target)
	}
	if old != nil {
		e.releaseSelectors(old)
	}
}

// holdSelectors puts in place of the selectors of a policy those that equal
// ones share; releaseSelectors lets go of them.
func (e *Engine) holdSelectors(c *compile.Policy) {
	for s := range c.Selectors() {
		*s = e.selectors.Hold(*s)
	}
}

func (e *Engine) releaseSelectors(c *compile.Policy) {
	for s := range c.Selectors() {
		e.selectors.Release(*s)
	}
}

func (e *Engine) dirtyPolicy(p *policy) {
	if !p.dirty {
		p.dirty = true
		e.dirtyPolicies = append(e.dirtyPolicies, p)
	}
}

// retarget moves a changed policy from its target to another, perhaps the
// same, or to none.
func (e *Engine) retarget(p *policy, target *selection) {
	e.dirtyPolicy(p)
	if old := p.target; old != nil {
		e.staleTarget(old)
		old.policies.Remove(p)
		if old != target {
			e.dropIfUnused(old)
		}
	}
	p.target = target
	if target != nil {
		target.policies.Add(p)
		e.staleTarget(target)
	}
}

func (e *Engine) flushPolicies() (updates, removals []model.Update) {
	dirty := e.dirtyPolicies
	e.dirtyPolicies = nil
	slices.SortFunc(dirty, func(a, b *policy) int { return a.id.Compare(b.id) })
	for _, p := range dirty {
		p.dirty = false
		if p.applies() {
			if e.apply(p) {
				updates = append(updates, model.PolicyUpdate{Policy: p.emitted})
			}
			continue
		}
		if p.emitted != nil {
			e.unapply(p)
			removals = append(removals, model.PolicyRemove{ID: p.id})
		}
		if p.compiled == nil {
			delete(e.policies, p.id)
		}
	}
	return updates, removals
}

// apply acquires the groups of a policy that applies here, and reports
// whether it differs from the one of the last Flush.
func (e *Engine) apply(p *policy) bool {
	if p.source == p.compiled {
		return false
	}
	now := e.withoutCollision(p)
	for i := range now.Groups {
		e.acquire(&now.Groups[i])
	}
	changed := p.emitted == nil || !reflect.DeepEqual(*p.emitted, now.Model)
	e.releaseGroups(p.source)
	p.source = now
	if changed {
		p.emitted = &now.Model
	}
	return changed
}

// unapply releases the groups of a policy that applies here no more.
func (e *Engine) unapply(p *policy) {
	e.releaseGroups(p.source)
	delete(e.collisions, p.id)
	p.emitted, p.source = nil, nil
}

func (e *Engine) releaseGroups(c *compile.Policy) {
	if c == nil {
		return
	}
	for i := range c.Groups {
		e.release(c.Groups[i].ID)
	}
}
