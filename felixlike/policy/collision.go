package policy

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
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
	narrow.groupIDs = compile.GroupIDs(hash)
	return narrow
}

// withoutCollision returns the compiled policy, closed if one of its groups has the
// identifier of another group.
func (e *Engine) withoutCollision(p *policy) *compile.Policy {
	found, collides := e.collides(p.compiled)
	if !collides {
		delete(e.collisions, p.id)
		return p.compiled
	}
	e.collisions[p.id] = found
	return p.compiled.Closed()
}

func (e *Engine) collides(c *compile.Policy) (compile.Collision, bool) {
	for i := range c.Groups {
		spec := &c.Groups[i]
		if g := e.groups[spec.ID]; g != nil && !g.spec.Same(spec) {
			return compile.Collision{Group: spec.Describe(), Other: g.Description}, true
		}
	}
	return compile.Collision{}, false
}

// retryCollided has the next flush look again at policies whose collision is gone, and
// reports whether there are any.
func (e *Engine) retryCollided() bool {
	some := false
	for id := range e.collisions {
		p := e.policies[id]
		if _, collides := e.collides(p.compiled); !collides {
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
