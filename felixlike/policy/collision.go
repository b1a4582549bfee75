package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// Two groups with one identifier would share the sets of the kernel, and one policy
// would select the pods of another. So the engine compares definitions. A group keeps its
// identifier while a policy that applies here refers to it. A policy that refers to
// another group with that identifier is closed, and takes its turn when the first group
// is gone. If both policies come at once, as after a restart, the lesser one is first.
// Identifiers thus depend on definitions alone.

// Narrowed returns a new engine for the same node, whose identifiers of groups have so few
// characters of hash: tests have groups collide with it.
func (e *Engine) Narrowed(hash int) *Engine {
	narrow := New(e.node)
	narrow.groupIDs = groupIDs(hash)
	return narrow
}

// collision is why a policy is closed: its group has the identifier of another one.
type collision struct{ group, other string }

func (c collision) String() string {
	return fmt.Sprintf("%q and %q have one identifier: change a selector or a block; no rule of the policy allows anything", c.group, c.other)
}

// same reports whether two definitions are of the same group.
func (s *groupSpec) same(o *groupSpec) bool {
	return s.kind == o.kind && s.port == o.port && s.from.namespace == o.from.namespace &&
		sameSelector(s.from.namespaces, o.from.namespaces) && sameSelector(s.from.pods, o.from.pods) && sameSelector(s.nodes, o.nodes) &&
		(s.networks == o.networks || s.networks != nil && o.networks != nil && s.networks.blocks == o.networks.blocks)
}

func sameSelector(a, b *label.Selector) bool {
	return a == b || a != nil && b != nil && a.String() == b.String()
}

// closeCollided closes a policy two groups of which have one identifier.
func (c *compiler) closeCollided(p *model.Policy) {
	if c.collided == nil {
		return
	}
	c.add("spec", "%s", collision{c.collided[1].describe(), c.collided[0].describe()})
	p.Ingress, p.Egress = closedRules(p.Ingress), closedRules(p.Egress)
}

// withoutCollision returns the compiled policy, closed if one of its groups has the
// identifier of another group.
func (e *Engine) withoutCollision(p *policy) *compiled {
	found, collides := e.collision(p.compiled)
	if !collides {
		delete(e.collisions, p.id)
		return p.compiled
	}
	e.collisions[p.id] = found
	closed := *p.compiled
	closed.policy.Ingress, closed.policy.Egress = closedRules(closed.policy.Ingress), closedRules(closed.policy.Egress)
	closed.groups = nil
	return &closed
}

func (e *Engine) collision(c *compiled) (collision, bool) {
	for i := range c.groups {
		spec := &c.groups[i]
		if g := e.groups[spec.id]; g != nil && !g.spec.same(spec) {
			return collision{spec.describe(), g.Description}, true
		}
	}
	return collision{}, false
}

// retryCollided has the next flush look again at policies whose collision is gone, and
// reports whether there are any.
func (e *Engine) retryCollided() bool {
	some := false
	for id := range e.collisions {
		p := e.policies[id]
		if _, collides := e.collision(p.compiled); !collides {
			e.dirtyPolicy(p)
			some = true
		}
	}
	return some
}

// Collisions says which policies are closed because another group has the identifier of
// one of theirs, in order.
func (e *Engine) Collisions() []model.Problem {
	var all []model.Problem
	for _, id := range slices.SortedFunc(maps.Keys(e.collisions), model.PolicyID.Compare) {
		object := model.ObjectRef{Kind: "NetworkPolicy", Namespace: id.Namespace, Name: id.Name}
		if id.Tier != model.TierNetworkPolicy {
			object.Kind = "ClusterNetworkPolicy"
		}
		all = append(all, model.Problem{Object: object, Field: "spec", Reason: e.collisions[id].String()})
	}
	return all
}
