package managers

import (
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// appliedRef is one endpoint's hold on the chains of its applied policies.
// The zero value is that of a closed endpoint.
type appliedRef struct {
	key     string
	verdict tables.Action
}

func (r appliedRef) verdictOrDeny(d model.Direction) tables.Action {
	if r.verdict == nil {
		return rules.Deny(d)
	}
	return r.verdict
}

// appliedChains keeps the chains that endpoints with equal lists of policies
// share, counted by reference.
type appliedChains struct {
	renderer *rules.Renderer
	chains   Chains
	byKey    map[string]*appliedChain
	// users finds the chains that ask a policy.
	users    map[model.PolicyID]map[string]bool
	hasRules map[policyDirection]bool
	dirty    dirty[string]
}

type policyDirection struct {
	id model.PolicyID
	d  model.Direction
}

type appliedChain struct {
	direction model.Direction
	applied   model.Applied
	holders   int
	// programmed tells that the chain was set.
	programmed bool
}

func newAppliedChains(renderer *rules.Renderer, chains Chains) *appliedChains {
	return &appliedChains{
		renderer: renderer, chains: chains, byKey: map[string]*appliedChain{},
		users: map[model.PolicyID]map[string]bool{}, hasRules: map[policyDirection]bool{}, dirty: dirty[string]{},
	}
}

// hold takes a reference on the chains for these policies.
func (c *appliedChains) hold(d model.Direction, a model.Applied) appliedRef {
	_, verdict := c.renderer.Applied(d, a, func(model.PolicyID) bool { return false })
	if a.Empty() {
		return appliedRef{verdict: verdict}
	}
	key := c.renderer.AppliedChain(d, a)
	chain := c.byKey[key]
	if chain == nil {
		chain = &appliedChain{direction: d, applied: a}
		c.byKey[key] = chain
		for id := range policiesOf(a) {
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
	return appliedRef{key: key, verdict: verdict}
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

// setHasRules notes in which directions a policy has rules to be asked.
func (c *appliedChains) setHasRules(id model.PolicyID, ingress, egress bool) {
	for d, has := range map[model.Direction]bool{model.Ingress: ingress, model.Egress: egress} {
		k := policyDirection{id, d}
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

// complete renders the chains that are held and removes those that are not.
func (c *appliedChains) complete() {
	for _, key := range c.dirty.take(strings.Compare) {
		chain := c.byKey[key]
		if chain == nil {
			continue
		}
		if chain.holders == 0 {
			c.remove(key, chain)
			continue
		}
		rendered, _ := c.renderer.Applied(chain.direction, chain.applied, func(id model.PolicyID) bool {
			return c.hasRules[policyDirection{id, chain.direction}]
		})
		c.chains.UpdateChain(rendered)
		chain.programmed = true
	}
}

func (c *appliedChains) remove(key string, chain *appliedChain) {
	if chain.programmed {
		c.chains.RemoveChain(key)
	}
	delete(c.byKey, key)
	for id := range policiesOf(chain.applied) {
		delete(c.users[id], key)
		if len(c.users[id]) == 0 {
			delete(c.users, id)
		}
	}
}

// policiesOf yields every policy of the lists.
func policiesOf(a model.Applied) func(yield func(model.PolicyID) bool) {
	return func(yield func(model.PolicyID) bool) {
		for _, ids := range [][]model.PolicyID{a.Admin, a.NetworkPolicies, a.Baseline} {
			for _, id := range ids {
				if !yield(id) {
					return
				}
			}
		}
	}
}
