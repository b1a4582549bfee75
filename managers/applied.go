package managers

import (
	"maps"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// appliedRef is one endpoint's hold on the chains of its applied policies: their
// key, or where none apply, the verdict. The zero value is that of a closed endpoint.
type appliedRef struct {
	key     string
	verdict tables.Action
}

// appliedChains keeps the chains that endpoints with equal lists of policies
// share, counted by reference.
type appliedChains struct {
	renderer *rules.Renderer
	chains   Chains
	// byKey has them by rules.AppliedIdentity, claims says which of them have their
	// names.
	byKey  map[string]*appliedChain
	claims *rules.Claims[string]
	// users finds the chains that ask a policy.
	users    map[model.PolicyID]map[string]bool
	hasRules map[rules.PolicySide]bool
	dirty    dirty[string]
	// render and removed are what settle has left for complete.
	render  map[string]bool
	removed []string
}

type appliedChain struct {
	direction model.Direction
	applied   model.Applied
	name      string
	holders   int
}

func newAppliedChains(renderer *rules.Renderer, chains Chains) *appliedChains {
	return &appliedChains{
		renderer: renderer, chains: chains, byKey: map[string]*appliedChain{}, claims: rules.NewClaims(strings.Compare),
		users: map[model.PolicyID]map[string]bool{}, hasRules: map[rules.PolicySide]bool{}, dirty: dirty[string]{},
		render: map[string]bool{},
	}
}

// hold takes a reference on the chains for these policies.
func (c *appliedChains) hold(d model.Direction, a model.Applied) appliedRef {
	if a.Empty() {
		_, verdict := c.renderer.Applied(d, a, nil)
		return appliedRef{verdict: verdict}
	}
	key := rules.AppliedIdentity(d, a)
	chain := c.byKey[key]
	if chain == nil {
		chain = &appliedChain{direction: d, applied: a, name: c.renderer.AppliedChain(d, a)}
		c.byKey[key] = chain
		for id := range a.All() {
			if c.users[id] == nil {
				c.users[id] = map[string]bool{}
			}
			c.users[id][key] = true
		}
	}
	if chain.holders == 0 {
		c.dirty.add(key)
	}
	chain.holders++
	return appliedRef{key: key}
}

// release gives a reference back; chains without holders are removed by
// complete.
func (c *appliedChains) release(r appliedRef) {
	if chain := c.byKey[r.key]; chain != nil {
		chain.holders--
		if chain.holders == 0 {
			c.dirty.add(r.key)
		}
	}
}

// verdict returns what dispatch has to do for the holder of a reference.
func (c *appliedChains) verdict(d model.Direction, r appliedRef) tables.Action {
	if chain := c.byKey[r.key]; chain != nil && c.claims.Has(chain.name, r.key) {
		return tables.Goto{Chain: chain.name}
	}
	if r.verdict != nil {
		return r.verdict
	}
	return rules.Deny(d)
}

// setHasRules notes in which directions a policy has rules to be asked.
func (c *appliedChains) setHasRules(id model.PolicyID, ingress, egress bool) {
	for d, has := range map[model.Direction]bool{model.Ingress: ingress, model.Egress: egress} {
		k := rules.PolicySide{ID: id, Direction: d}
		if c.hasRules[k] == has {
			continue
		}
		if has {
			c.hasRules[k] = true
		} else {
			delete(c.hasRules, k)
		}
		for key := range c.users[id] {
			c.dirty.add(key)
		}
	}
}

// settle finds which chains have their names, and returns the keys of those whose
// verdict is another one by that.
func (c *appliedChains) settle() []string {
	for _, side := range c.renderer.Policies().News() {
		for key := range c.users[side.ID] {
			c.dirty.add(key)
		}
	}
	for _, key := range c.dirty.take(strings.Compare) {
		chain := c.byKey[key]
		switch {
		case chain == nil:
		case chain.holders > 0:
			c.claims.Want(chain.name, key)
			c.render[key] = true
		default:
			c.remove(key, chain)
		}
	}
	changed := c.claims.Settle()
	for _, key := range changed {
		c.render[key] = true
	}
	return changed
}

// complete removes the chains that are not held, and renders those that are.
func (c *appliedChains) complete() {
	for _, name := range c.removed {
		c.chains.RemoveChain(name)
	}
	for _, key := range slices.Sorted(maps.Keys(c.render)) {
		chain := c.byKey[key]
		if !c.claims.Has(chain.name, key) {
			continue
		}
		rendered, _ := c.renderer.Applied(chain.direction, chain.applied, func(id model.PolicyID) bool {
			return c.hasRules[rules.PolicySide{ID: id, Direction: chain.direction}]
		})
		c.chains.UpdateChain(rendered)
	}
	c.removed = nil
	clear(c.render)
}

func (c *appliedChains) remove(key string, chain *appliedChain) {
	if c.claims.Release(chain.name, key) {
		c.removed = append(c.removed, chain.name)
	}
	delete(c.byKey, key)
	for id := range chain.applied.All() {
		delete(c.users[id], key)
		if len(c.users[id]) == 0 {
			delete(c.users, id)
		}
	}
}
