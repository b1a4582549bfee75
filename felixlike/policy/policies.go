package policy

import (
	"maps"
	"reflect"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// policyStore has the policies of all kinds. It acquires the groups of those that apply to
// local pods.
//
// Two groups with one identifier would share the sets of the kernel, and one policy would
// select the pods of another. So the store compares definitions. A group keeps its
// identifier while a policy that applies here refers to it. A policy with another group of
// that identifier is closed until the first group is gone. If both policies come at once,
// as after a restart, the lesser one is first. So identifiers depend on definitions alone.
type policyStore struct {
	byID map[model.PolicyID]*policy
	// collisions are the policies that are closed because of one.
	collisions map[model.PolicyID]compile.Collision
	// named are the policies that apply here and have groups of named ports.
	named  smallmap.Set[*policy]
	hosts  *hostStore
	staged *stagedStore
	index  *selectionIndex
	groups *groupStore
	dirty  *dirtyRecords
}

func (x *policyStore) set(c *compile.Policy) {
	id := c.Model.ID
	p, ok := x.byID[id]
	if !ok {
		p = &policy{id: id}
		x.byID[id] = p
	}
	x.holdSelectors(c)
	old := p.compiled
	if old != nil && reflect.DeepEqual(old, c) {
		x.releaseSelectors(c)
		return
	}
	p.compiled = c
	x.hosts.note(p)
	targets := x.targetsOf(c)
	if old != nil && slices.Equal(targets, p.targets) && old.Ingress == c.Ingress && old.Egress == c.Egress && old.Staged == c.Staged && old.Model.Precedence == c.Model.Precedence {
		x.dirty.policy(p) // the lists of endpoints are the same
	} else {
		x.retarget(p, targets)
	}
	if old != nil {
		x.releaseSelectors(old)
	}
}

func (x *policyStore) remove(id model.PolicyID) {
	if p, ok := x.byID[id]; ok && p.compiled != nil {
		old := p.compiled
		p.compiled = nil
		x.hosts.note(p)
		x.retarget(p, nil)
		x.releaseSelectors(old)
	}
}

// holdSelectors replaces the selectors of a policy by the stored ones that equal them, and
// counts the references. releaseSelectors gives these back.
func (x *policyStore) holdSelectors(c *compile.Policy) {
	for s := range c.Selectors() {
		*s = x.index.selectors.Hold(*s)
	}
}

func (x *policyStore) releaseSelectors(c *compile.Policy) {
	for s := range c.Selectors() {
		x.index.selectors.Release(*s)
	}
}

// targetsOf returns the selections that a policy applies to, each once.
func (x *policyStore) targetsOf(c *compile.Policy) []*selection {
	var targets []*selection
	for _, spec := range c.Targets {
		if s := x.index.selection(spec); !slices.Contains(targets, s) {
			targets = append(targets, s)
		}
	}
	return targets
}

// retarget moves a changed policy to targets, which may be the old ones, or none.
func (x *policyStore) retarget(p *policy, targets []*selection) {
	x.dirty.policy(p)
	before := p.targets
	for _, old := range before {
		x.dirty.target(old)
		old.policies.Remove(p)
	}
	p.targets = targets
	for _, s := range targets {
		s.policies.Add(p)
		x.dirty.target(s)
	}
	for _, old := range before {
		x.index.dropIfUnused(old)
	}
}

func (x *policyStore) flush() (updates, removals []model.Update) {
	dirty := x.dirty.policies
	x.dirty.policies = nil
	slices.SortFunc(dirty, func(a, b *policy) int { return a.id.Compare(b.id) })
	for _, p := range dirty {
		p.dirty = false
		ofPods, ofHost := p.enforced(), x.hosts.selects(p)
		if p.emitted != nil && (p.ofHost && !ofHost || !p.ofHost && !ofPods) {
			x.unapply(p)
			if p.ofHost {
				x.hosts.stale = true
			} else {
				removals = append(removals, model.PolicyRemove{ID: p.id})
			}
		}
		if (ofPods || ofHost) && x.apply(p) {
			if p.ofHost = ofHost; ofHost {
				x.hosts.stale = true
			} else {
				updates = append(updates, model.PolicyUpdate{Policy: p.emitted})
			}
		}
		x.staged.set(p)
		if p.compiled == nil {
			delete(x.byID, p.id)
		}
	}
	return updates, removals
}

// apply acquires the groups of a policy that applies here. It reports whether the policy
// differs from that of the last Flush.
func (x *policyStore) apply(p *policy) bool {
	if p.source == p.compiled {
		return false
	}
	now := x.withoutCollision(p)
	for i := range now.Groups {
		x.groups.acquire(&now.Groups[i])
	}
	changed := p.emitted == nil || !reflect.DeepEqual(*p.emitted, now.Model)
	x.releaseGroups(p.source)
	p.source = now
	if slices.ContainsFunc(now.Groups, func(g compile.Group) bool { return g.Kind == model.AddressPorts }) {
		x.named.Add(p)
	} else {
		x.named.Remove(p)
	}
	if changed {
		p.emitted = &now.Model
	}
	return changed
}

// unapply releases the groups of a policy that no longer applies here.
func (x *policyStore) unapply(p *policy) {
	x.releaseGroups(p.source)
	delete(x.collisions, p.id)
	x.named.Remove(p)
	p.emitted, p.source = nil, nil
}

func (x *policyStore) releaseGroups(c *compile.Policy) {
	if c == nil {
		return
	}
	for i := range c.Groups {
		x.groups.release(c.Groups[i].ID)
	}
}

// withoutCollision returns the compiled policy, closed if one of its groups has the
// identifier of another group.
func (x *policyStore) withoutCollision(p *policy) *compile.Policy {
	found, collides := x.groups.collision(p.compiled)
	if !collides {
		delete(x.collisions, p.id)
		return p.compiled
	}
	x.collisions[p.id] = found
	return p.compiled.Closed()
}

// retryCollided marks policies as dirty if their collision is gone, and reports whether there
// are any.
func (x *policyStore) retryCollided() bool {
	some := false
	for id := range x.collisions {
		p := x.byID[id]
		if _, collides := x.groups.collision(p.compiled); !collides {
			x.dirty.policy(p)
			some = true
		}
	}
	return some
}

// problems returns the collisions, in order. Parts of one object have one problem.
func (x *policyStore) problems() []model.Problem {
	var all []model.Problem
	for _, id := range slices.SortedFunc(maps.Keys(x.collisions), model.PolicyID.Compare) {
		all = append(all, model.Problem{Object: id.Object(), Field: "spec", Reason: x.collisions[id].String()})
	}
	return slices.Compact(all)
}

// hostTargets returns, by NetworkPolicy, the pods in the network of their host that its selector matches, sorted; if
// not all are wanted, the first of them.
func (x *policyStore) hostTargets(all bool) map[model.PolicyID][]model.PodID {
	found := map[model.PolicyID][]model.PodID{}
	for s := range x.index.members.hosted.All() {
		for p := range s.policies.All() {
			if p.id == networkPolicyID(p.id.Namespace, p.id.Name) && found[p.id] == nil {
				found[p.id] = x.hostTargetsOf(p, all)
			}
		}
	}
	return found
}

func (x *policyStore) hostTargetsOf(p *policy, all bool) []model.PodID {
	var ids []model.PodID
	for c := range x.index.namespaces[p.id.Namespace].hosts.All() {
		x.index.work.Visits++
		switch {
		case !slices.ContainsFunc(p.targets, func(s *selection) bool { return s.classes.Has(c) }):
		case all:
			for _, h := range c.pods[host] {
				ids = append(ids, h.id)
			}
		default:
			ids = append(ids, x.index.firstHost(c).id)
		}
	}
	slices.SortFunc(ids, model.PodID.Compare)
	if !all {
		ids = ids[:1]
	}
	return ids
}

// unresolvedPorts returns, by object, the named ports of the policies that apply here that no pod declares, sorted. A name in a
// ClusterNetworkPolicy is for every protocol: it is unresolved if no pod declares it for any.
func (x *policyStore) unresolvedPorts() map[model.ObjectRef][]string {
	resolved := map[model.ObjectRef]map[string]bool{}
	for p := range x.named.All() {
		x.index.work.Visits++
		object := p.id.Object()
		if resolved[object] == nil {
			resolved[object] = map[string]bool{}
		}
		for i := range p.source.Groups {
			if spec := &p.source.Groups[i]; spec.Kind == model.AddressPorts {
				name := spec.Port.String()
				if p.id.API == model.Kubernetes && p.id.Tier != model.TierNetworkPolicy {
					name = spec.Port.Name
				}
				resolved[object][name] = resolved[object][name] || x.groups.byID[spec.ID].counts.Len() > 0
			}
		}
	}
	found := map[model.ObjectRef][]string{}
	for object, ports := range resolved {
		maps.DeleteFunc(ports, func(_ string, found bool) bool { return found })
		if len(ports) > 0 {
			found[object] = slices.Sorted(maps.Keys(ports))
		}
	}
	return found
}
