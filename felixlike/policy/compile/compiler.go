package compile

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// compiler compiles one policy. It is a pure function of the object.
type compiler struct {
	Report
	ids       GroupIDs
	namespace string
	// whole is true if a fault of a part closes the whole rule, and the caller says so.
	whole bool
	// targets select the pods that the policy applies to.
	targets []Selection
	// defined has the groups of all rules.
	defined smallmap.Map[model.GroupID, Group]
	// collided are two different groups of the policy with one identifier.
	collided *[2]Group
}

// used returns the definitions of the groups in the policy's rules.
func (c *compiler) used(p *model.Policy) []Group {
	var ids []model.GroupID
	for _, d := range model.Directions() {
		for _, r := range p.Rules(d) {
			ids = append(append(ids, r.Peers...), r.NamedPorts...)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	groups := make([]Group, len(ids))
	for i, id := range ids {
		groups[i] = c.defined.Get(id)
	}
	return groups
}

// define notes the definition of a group, and returns its identifier.
func (c *compiler) define(g Group) model.GroupID {
	if c.defined.Has(g.ID) {
		if other := c.defined.Get(g.ID); !other.Same(&g) {
			c.collided = &[2]Group{other, g}
		}
	}
	c.defined.Put(g.ID, g)
	return g.ID
}

// lost adds a problem of a part of a rule, which then matches nothing.
func (c *compiler) lost(part, field, format string, args ...any) {
	if !c.whole {
		format += "; the " + part + " matches nothing"
	}
	c.Add(field, format, args...)
}

// indexed returns "name[i]".
func indexed(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// Collision is the reason why a policy is closed: its group has the identifier of another group.
type Collision struct{ Group, Other string }

func (c Collision) String() string {
	return fmt.Sprintf("%q and %q have one identifier: change a selector or a block; no rule of the policy allows anything", c.Group, c.Other)
}

// closeCollided closes the policy if two of its groups have one identifier.
func (c *compiler) closeCollided(p *model.Policy) {
	if c.collided == nil {
		return
	}
	c.Add("spec", "%s", Collision{c.collided[1].Describe(), c.collided[0].Describe()})
	p.Ingress, p.Egress = closedRules(p.Ingress), closedRules(p.Egress)
}
