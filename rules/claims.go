package rules

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// Claims assigns names to objects, by whole identities. An object keeps its name until
// it is deleted, so a later collision does not change programmed chains. If several
// objects want a free name at once, as after a restart, the least one gets it. The
// others are refused: their managers deny in place of their chains, and report them.
//
// Refused objects get no second name. It would depend on the order of arrival, and a
// restart would rename chains; or on the other objects, and a new object would.
type Claims[K comparable] struct {
	compare func(a, b K) int
	owners  map[string]K
	// pending are the objects that want a name since the last Settle. waiting are
	// the refused objects by name; refused has the owner of the name for each.
	pending map[K]string
	waiting map[string][]K
	refused map[K]K
	// changes are the objects that Settle has returned since the last call of Changes.
	changes map[K]struct{}
}

// NewClaims returns an empty Claims for objects of the given order.
func NewClaims[K comparable](compare func(a, b K) int) *Claims[K] {
	return &Claims[K]{
		compare: compare, owners: map[string]K{}, pending: map[K]string{}, waiting: map[string][]K{}, refused: map[K]K{}, changes: map[K]struct{}{},
	}
}

// Want notes that an object wants the name. Settle decides. A second call changes nothing.
func (c *Claims[K]) Want(name string, by K) {
	if _, refused := c.refused[by]; !refused && !c.Has(name, by) {
		c.pending[by] = name
	}
}

// Release takes a claim back, and reports whether the object had the name.
func (c *Claims[K]) Release(name string, by K) (had bool) {
	delete(c.pending, by)
	if !c.Has(name, by) {
		if _, refused := c.refused[by]; refused {
			c.forget(name, by)
		}
		return false
	}
	delete(c.owners, name)
	for _, k := range c.waiting[name] {
		c.pending[k] = name
	}
	return true
}

func (c *Claims[K]) forget(name string, by K) {
	delete(c.refused, by)
	c.waiting[name] = slices.DeleteFunc(c.waiting[name], func(k K) bool { return k == by })
	if len(c.waiting[name]) == 0 {
		delete(c.waiting, name)
	}
}

// Settle gives each free name to the least of those that want it. It returns, in
// order, the objects that are newly refused or no longer so.
func (c *Claims[K]) Settle() []K {
	var changed []K
	for _, by := range slices.SortedFunc(maps.Keys(c.pending), c.compare) {
		name := c.pending[by]
		owner, taken := c.owners[name]
		_, was := c.refused[by]
		switch {
		case !taken:
			c.owners[name] = by
			if was {
				c.forget(name, by)
			}
		case owner == by:
			continue
		default:
			if !was {
				c.waiting[name] = append(c.waiting[name], by)
			}
			c.refused[by] = owner
		}
		if was == !taken {
			changed = append(changed, by)
		}
	}
	c.pending = map[K]string{} // cleared, it would keep the room of the first load
	for _, k := range changed {
		c.changes[k] = struct{}{}
	}
	return changed
}

// Changes returns, in order, the objects that Settle has returned since the last call of
// Changes.
func (c *Claims[K]) Changes() []K {
	if len(c.changes) == 0 {
		return nil
	}
	changes := slices.SortedFunc(maps.Keys(c.changes), c.compare)
	c.changes = map[K]struct{}{}
	return changes
}

// Has reports whether the object has the name.
func (c *Claims[K]) Has(name string, by K) bool {
	owner, taken := c.owners[name]
	return taken && owner == by
}

// Refused returns the owner of the name that a refused object wants.
func (c *Claims[K]) Refused(by K) (owner K, refused bool) {
	owner, refused = c.refused[by]
	return owner, refused
}

// AllRefused yields the refused objects in order, each with the owner of its name.
func (c *Claims[K]) AllRefused() iter.Seq2[K, K] {
	return func(yield func(by, owner K) bool) {
		for _, k := range slices.SortedFunc(maps.Keys(c.refused), c.compare) {
			if !yield(k, c.refused[k]) {
				return
			}
		}
	}
}

// PolicySide is a policy in one direction.
type PolicySide struct {
	ID        model.PolicyID
	Direction model.Direction
}

// Compare orders by policy, then direction.
func (s PolicySide) Compare(o PolicySide) int {
	return cmp.Or(s.ID.Compare(o.ID), cmp.Compare(s.Direction, o.Direction))
}
