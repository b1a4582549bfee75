package policy

import (
	"maps"
	"reflect"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/model"
)

// policy is a NetworkPolicy on its way from the object to the model.
type policy struct {
	id model.PolicyID
	// compiled is what the object says now; nil once it was deleted.
	compiled *compiled
	// target are the local pods that the policy applies to.
	target *selection
	// emitted is the policy of the last Flush, compiled from the object that
	// source is; held are the groups acquired for it.
	emitted *model.Policy
	source  *compiled
	held    []model.GroupID
}

// applies reports whether the policy applies to a local endpoint.
func (p *policy) applies() bool { return p.compiled != nil && len(p.target.members) > 0 }

// SetNetworkPolicy creates or replaces a NetworkPolicy, and reports what in
// it cannot be understood. Such a part allows nothing; the pods are isolated
// all the same.
func (e *Engine) SetNetworkPolicy(object *networkingv1.NetworkPolicy) []model.Problem {
	if object == nil {
		return nil
	}
	e.work.Policies++
	c, problems := compile(object)
	e.setPolicy(c)
	return problems
}

// SetClosedNetworkPolicy puts in place of a NetworkPolicy that could not be
// decoded one that isolates, in both directions and without rules, the pods
// that the selector matches, or all of the namespace if it is nil or invalid.
func (e *Engine) SetClosedNetworkPolicy(namespace, name string, podSelector *metav1.LabelSelector) {
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: namespace, Name: name}
	c := &compiled{policy: model.Policy{ID: id}, pods: newSelector(nil), ingress: true, egress: true}
	if podSelector != nil {
		if pods, errs := compileSelector(podSelector, "spec.podSelector"); len(errs) == 0 {
			c.pods = pods
		}
	}
	e.setPolicy(c)
}

// DeleteNetworkPolicy removes a NetworkPolicy.
func (e *Engine) DeleteNetworkPolicy(namespace, name string) {
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: namespace, Name: name}
	if p, ok := e.policies[id]; ok && p.compiled != nil {
		p.compiled = nil
		e.retarget(p, nil)
	}
}

// HostNetworkTargets returns, sorted, the pods in a host's network that the
// policy's selector matches: policy does not apply to them, which their
// owners may not expect.
func (e *Engine) HostNetworkTargets(namespace, name string) []model.PodID {
	p, ok := e.policies[model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: namespace, Name: name}]
	n := e.namespaces[namespace]
	if !ok || p.compiled == nil || n == nil {
		return nil
	}
	var ids []model.PodID
	for h := range n.hosts {
		if p.compiled.pods.matches(h.labels) {
			ids = append(ids, h.id)
		}
	}
	slices.SortFunc(ids, model.PodID.Compare)
	return ids
}

func (e *Engine) setPolicy(c *compiled) {
	id := c.policy.ID
	p, ok := e.policies[id]
	if !ok {
		p = &policy{id: id}
		e.policies[id] = p
	}
	if p.compiled != nil && reflect.DeepEqual(p.compiled, c) {
		return
	}
	p.compiled = c
	e.retarget(p, e.selection(selectionSpec{byName: true, namespace: id.Namespace, pods: c.pods, local: true}))
}

// retarget moves a changed policy from its target to another, perhaps the
// same, or to none.
func (e *Engine) retarget(p *policy, target *selection) {
	e.dirtyPolicies.add(p)
	if old := p.target; old != nil {
		e.dirtyMembers(old)
		delete(old.policies, p)
		if old != target {
			e.dropIfUnused(old)
		}
	}
	p.target = target
	if target != nil {
		target.policies.add(p)
		e.dirtyMembers(target)
	}
}

func (e *Engine) dirtyMembers(s *selection) {
	e.work.Visits += uint64(len(s.members))
	for p := range s.members {
		e.dirtyEndpoints.add(p.id)
	}
}

// apply acquires the groups of a policy that applies here, and reports
// whether it differs from the one of the last Flush.
func (e *Engine) apply(p *policy) bool {
	if p.source == p.compiled {
		return false
	}
	held := p.held
	p.held = slices.Sorted(maps.Keys(p.compiled.groups))
	for _, id := range p.held {
		e.acquire(p.compiled.groups[id])
	}
	for _, id := range held {
		e.release(id)
	}
	p.source = p.compiled
	changed := p.emitted == nil || !reflect.DeepEqual(*p.emitted, p.compiled.policy)
	if changed {
		p.emitted = &p.compiled.policy
	}
	return changed
}

// unapply releases the groups of a policy that applies here no more.
func (e *Engine) unapply(p *policy) {
	for _, id := range p.held {
		e.release(id)
	}
	p.emitted, p.source, p.held = nil, nil, nil
}
