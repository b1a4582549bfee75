package managers

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers/grants"
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
	// byKey has the chains by rules.AppliedIdentity; claims assigns their names.
	byKey  map[string]*appliedChain
	claims *rules.Claims[string]
	// users finds the chains that ask a policy.
	users    map[model.PolicyID]map[string]bool
	hasRules map[rules.PolicySide]bool
	dirty    dirty[string]
	// render and removed are the chains that settle passes to complete.
	render  map[string]bool
	removed []string
	common  *commonChains
	// refused is true if the driver has refused an object (see LeaveCommonChains).
	refused bool
	// apart are chains that do not use the common chains. Another object has the name of
	// the chain, or of one of its policies, so the chain denies.
	apart map[string]bool
	// grants have the lists that are mapped; nil if there are none.
	grants *grants.Grants
}

type appliedChain struct {
	direction model.Direction
	applied   model.Applied
	name      string
	holders   int
	// mapped reports that the list is in grants: there is no chain of that name.
	mapped bool
	// addresses are those of the pods, as they are dispatched.
	addresses map[netip.Addr]bool
}

func newAppliedChains(renderer *rules.Renderer, chains Chains, sets ipsets.Sets) *appliedChains {
	return &appliedChains{
		renderer: renderer, chains: chains, byKey: map[string]*appliedChain{}, claims: rules.NewClaims(strings.Compare),
		users: map[model.PolicyID]map[string]bool{}, hasRules: map[rules.PolicySide]bool{}, dirty: dirty[string]{},
		render: map[string]bool{}, apart: map[string]bool{}, common: newCommonChains(renderer, chains, sets),
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
		chain = &appliedChain{direction: d, applied: a, name: c.renderer.AppliedChainBy(key, d, a), addresses: map[netip.Addr]bool{}}
		c.byKey[key] = chain
		if chain.mapped = c.grants.Mapped(key); !chain.mapped {
			c.common.use(key, chain)
		}
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

// verdict returns the dispatch's verdict for the holder of a reference.
func (c *appliedChains) verdict(d model.Direction, r appliedRef) tables.Action {
	chain := c.byKey[r.key]
	if chain != nil && chain.mapped {
		return tables.Goto{Chain: rules.GrantedChain(d)}
	}
	if chain != nil && c.claims.Has(chain.name, r.key) {
		return tables.Goto{Chain: chain.name}
	}
	if r.verdict != nil {
		return r.verdict
	}
	return rules.Deny(d)
}

// setRules records the number of a policy's rules in each direction.
func (c *appliedChains) setRules(id model.PolicyID, p *model.Policy) {
	for _, d := range model.Directions() {
		k, size, has := rules.PolicySide{ID: id, Direction: d}, 0, false
		if p != nil {
			size, has = rules.Size(p, d), len(p.Rules(d)) > 0
		}
		if c.common.sizes[k] != size || c.hasRules[k] != has {
			c.common.sizes[k] = size
			if size == 0 {
				delete(c.common.sizes, k)
			}
			for key := range c.users[id] {
				if chain := c.byKey[key]; chain.direction == d {
					c.common.touch(key, chain)
				}
			}
		}
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

// settle assigns names to chains, and returns the keys of chains whose verdict changes
// by that, or because their lists come to grants or leave them.
func (c *appliedChains) settle() []string {
	moved := c.settleMapped()
	for _, side := range c.renderer.Policies().Changes() {
		for key := range c.users[side.ID] {
			c.dirty.add(key)
		}
	}
	for _, key := range c.dirty.take(strings.Compare) {
		chain := c.byKey[key]
		switch {
		case chain == nil:
		case chain.holders == 0:
			c.remove(key, chain)
		case !chain.mapped:
			c.claims.Want(chain.name, key)
			c.render[key] = true
		}
	}
	changed := c.claims.Settle()
	for _, key := range changed {
		c.render[key] = true
	}
	return append(changed, moved...)
}

// settleMapped gives chains up whose lists are in grants now, and takes back those that left. It returns the keys of
// both.
func (c *appliedChains) settleMapped() (moved []string) {
	for _, key := range c.grants.ChangedLists() {
		chain := c.byKey[key]
		if chain == nil || chain.mapped == c.grants.Mapped(key) {
			continue
		}
		moved = append(moved, key)
		c.dirty.add(key)
		if chain.mapped = !chain.mapped; !chain.mapped {
			c.common.use(key, chain)
			continue
		}
		c.common.drop(key, chain)
		if c.claims.Release(chain.name, key) {
			c.removed = append(c.removed, chain.name)
		}
	}
	return moved
}

// choose chooses the parts of the common chains by the addresses in place, and returns
// the keys of the affected applied chains.
func (c *appliedChains) choose() []string {
	c.common.pause(c.refused)
	concerned := c.settleApart()
	for _, k := range c.common.choose(c.byKey, c.apart) {
		for key := range c.common.parts[k].chains {
			concerned[key], c.render[key] = true, true
		}
	}
	return slices.Collect(maps.Keys(concerned))
}

// settleApart finds the chains of objects that have no name because of a collision. It
// returns the chains that entered or left apart.
func (c *appliedChains) settleApart() map[string]bool {
	apart, changed := map[string]bool{}, map[string]bool{}
	for key := range c.claims.AllRefused() {
		apart[key] = true
	}
	for side := range c.renderer.Policies().AllRefused() {
		for key := range c.users[side.ID] {
			if c.byKey[key].direction == side.Direction {
				apart[key] = true
			}
		}
	}
	for _, both := range []map[string]bool{apart, c.apart} {
		for key := range both {
			if chain := c.byKey[key]; chain != nil && apart[key] != c.apart[key] {
				changed[key], c.render[key] = true, true
				c.common.touch(key, chain)
			}
		}
	}
	c.apart = apart
	return changed
}

// rendered renders a chain without the policies that the common chain evaluates for it.
func (c *appliedChains) rendered(key string, chain *appliedChain) tables.Chain {
	d, a := chain.direction, chain.applied
	common := func(k partKey) bool { return c.common.chosen[k] && !c.apart[key] }
	hasRules := func(id model.PolicyID) bool {
		return c.hasRules[rules.PolicySide{ID: id, Direction: d}] &&
			!(len(a.Admin) == 0 && a.Isolated() && common(partKey{direction: d, policy: id}))
	}
	if len(a.Admin) > 0 && common(adminPart(d, a)) {
		return c.renderer.BehindAdmin(d, a, hasRules)
	}
	rendered, _ := c.renderer.Applied(d, a, hasRules)
	return rendered
}

// place notes that an address is, or is no longer, of a pod with the chain, and
// returns the verdict to dispatch it by.
func (c *appliedChains) place(r appliedRef, d model.Direction, a netip.Addr, wanted bool) tables.Action {
	chain := c.byKey[r.key]
	if wanted && chain != nil && chain.mapped {
		c.grants.SetList(d, a, r.key)
	} else {
		c.grants.SetList(d, a, "")
	}
	if chain == nil {
		return c.verdict(d, r)
	}
	if chain.addresses[a] != wanted {
		if wanted {
			chain.addresses[a] = true
		} else {
			delete(chain.addresses, a)
		}
		c.common.touch(r.key, chain)
	}
	for _, k := range partsOf(r.key, d, chain.applied) {
		c.common.setMember(k, a, wanted && !chain.mapped && !c.apart[r.key])
	}
	if c.common.chosen[partKey{direction: d, pods: r.key}] && !chain.mapped && !c.apart[r.key] {
		// The common chain has decided. A chain here would be walked for each address.
		return tables.Drop{}
	}
	return c.verdict(d, r)
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
		c.chains.UpdateChain(c.rendered(key, chain))
	}
	c.common.complete(func(d model.Direction, id model.PolicyID) bool {
		return c.hasRules[rules.PolicySide{ID: id, Direction: d}]
	})
	c.removed = nil
	clear(c.render)
}

func (c *appliedChains) remove(key string, chain *appliedChain) {
	if c.claims.Release(chain.name, key) {
		c.removed = append(c.removed, chain.name)
	}
	for a := range chain.addresses {
		c.place(appliedRef{key: key}, chain.direction, a, false)
	}
	if !chain.mapped {
		c.common.drop(key, chain)
	}
	delete(c.byKey, key)
	for id := range chain.applied.All() {
		delete(c.users[id], key)
		if len(c.users[id]) == 0 {
			delete(c.users, id)
		}
	}
}
