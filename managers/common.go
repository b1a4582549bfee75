package managers

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

const (
	// CommonFrom is the least number of rule visits that a part must save to be in the
	// common chain. Visits are those of a kernel that validates a change by every path.
	CommonFrom = 1000
	// NoCommon is CommonFrom for a kernel that follows no paths.
	NoCommon = math.MaxInt
	// maxCommon bounds the parts of a direction, and so the set lookups for the first
	// packet of a connection.
	maxCommon = 32
)

// partKey identifies a part of the common chain of a direction: exactly one of the
// other fields is set.
type partKey struct {
	direction model.Direction
	policy    model.PolicyID
	// admin is a list of the admin tier, pods the key of an applied chain.
	admin, pods string
}

func (k partKey) compare(o partKey) int {
	return cmp.Or(cmp.Compare(k.direction, o.direction), k.policy.Compare(o.policy), strings.Compare(k.admin, o.admin), strings.Compare(k.pods, o.pods))
}

// part is a candidate for the common chain.
type part struct {
	rules.Part
	// chains are the keys of the applied chains that have it.
	chains map[string]bool
	// admin is the list of policies if the part is an AdminPart.
	admin []model.PolicyID
	// saves is the weight of the part, zero if it is too small.
	saves int
	// common is true if the part is in the common chain; members are its addresses.
	common  bool
	members map[netip.Addr]bool
	// sets are the names of the sets that have the members.
	sets map[model.Family]string
	// programmed are the members of these sets, for drivers that give a set with other
	// members another name.
	programmed map[model.Family][]model.Member
}

// commonChains choose the parts of the common chains and maintain their sets. The
// choice depends only on the current policies and pods, not on the order of updates.
type commonChains struct {
	partSets
	chains Chains
	from   int
	parts  map[partKey]*part
	// sizes are the numbers of rules of policies.
	sizes map[rules.PolicySide]int
	dirty dirty[partKey]
	// weighed are the parts that are large enough, chosen those of them that are in
	// the common chains.
	weighed, chosen map[partKey]bool
	paused          bool
	// stale are the directions whose chain must be rendered.
	stale map[model.Direction]bool
	// resized are common parts with changed members; complete replaces their sets. A driver
	// that changes sets before rules must not change a set that rules use: with the old
	// rules, the new members could close a pod, or open it by rules of other pods.
	resized dirty[partKey]
}

func newCommonChains(renderer *rules.Renderer, chains Chains, sets ipsets.Sets) *commonChains {
	return &commonChains{
		partSets: partSets{renderer, sets}, chains: chains, from: CommonFrom, parts: map[partKey]*part{}, sizes: map[rules.PolicySide]int{},
		dirty: dirty[partKey]{}, weighed: map[partKey]bool{}, chosen: map[partKey]bool{},
		stale: map[model.Direction]bool{model.Ingress: true, model.Egress: true}, resized: dirty[partKey]{},
	}
}

// partsOf yields the parts that a list of policies has.
func partsOf(key string, d model.Direction, a model.Applied) []partKey {
	all := []partKey{{direction: d, pods: key}}
	if len(a.Admin) > 0 {
		return append(all, adminPart(d, a))
	}
	for _, id := range a.NetworkPolicies {
		all = append(all, partKey{direction: d, policy: id})
	}
	return all
}

func adminPart(d model.Direction, a model.Applied) partKey {
	return partKey{direction: d, admin: rules.AppliedIdentity(d, model.Applied{Admin: a.Admin})}
}

// use notes that an applied chain has its parts.
func (c *commonChains) use(key string, chain *appliedChain) {
	for _, k := range partsOf(key, chain.direction, chain.applied) {
		p := c.parts[k]
		if p == nil {
			p = &part{chains: map[string]bool{}, members: map[netip.Addr]bool{}, sets: map[model.Family]string{}, programmed: map[model.Family][]model.Member{}}
			switch {
			case k.admin != "":
				p.admin, p.Part = chain.applied.Admin, c.renderer.AdminPart(k.direction, chain.applied.Admin)
			case k.pods != "":
				p.Part = c.renderer.PodsPartOf(k.direction, chain.name)
			default:
				p.Part = c.renderer.PolicyPart(k.direction, k.policy)
			}
			c.parts[k] = p
		}
		p.chains[key] = true
		c.dirty.add(k)
	}
}

// drop notes that an applied chain was removed.
func (c *commonChains) drop(key string, chain *appliedChain) {
	for _, k := range partsOf(key, chain.direction, chain.applied) {
		delete(c.parts[k].chains, key)
		c.dirty.add(k)
	}
}

// touch has the parts of a chain weighed again.
func (c *commonChains) touch(key string, chain *appliedChain) {
	for _, k := range partsOf(key, chain.direction, chain.applied) {
		c.dirty.add(k)
	}
}

// pause empties the common chains while paused.
func (c *commonChains) pause(wanted bool) {
	if c.paused == wanted {
		return
	}
	c.paused = wanted
	for k := range c.parts {
		c.dirty.add(k)
	}
}

// choose weighs the changed parts, and returns those that join or leave the common chain.
// Chains that are apart do not use it.
func (c *commonChains) choose(chains map[string]*appliedChain, apart map[string]bool) []partKey {
	if len(c.dirty) == 0 {
		return nil
	}
	for _, k := range c.dirty.take(partKey.compare) {
		p := c.parts[k]
		if p == nil {
			continue
		}
		p.saves = c.weigh(k, p, chains, apart)
		if p.saves > 0 {
			c.weighed[k] = true
		} else {
			delete(c.weighed, k)
		}
		if p.common && k.admin != "" {
			c.stale[k.direction] = true // its policies may have other rules
		}
		if len(p.chains) == 0 && !p.common {
			delete(c.parts, k)
		}
	}
	chosen := map[partKey]bool{}
	for _, d := range model.Directions() {
		for _, k := range c.heaviest(d) {
			chosen[k] = true
		}
	}
	var flips []partKey
	for k := range chosen {
		if !c.chosen[k] {
			flips = append(flips, k)
		}
	}
	for k := range c.chosen {
		if !chosen[k] {
			flips = append(flips, k)
		}
	}
	c.chosen = chosen
	slices.SortFunc(flips, partKey.compare)
	for _, k := range flips {
		p := c.parts[k]
		p.common = !p.common
		c.stale[k.direction] = true
		if p.common {
			c.resized.add(k)
			c.createSets(p)
		} else {
			c.removeSets(p)
			clear(p.members)
			if k.admin != "" {
				c.chains.RemoveChain(c.adminChain(k, p, nil).Name)
			}
		}
	}
	return flips
}

// heaviest returns the parts of a direction to be in the common chain. Weights are
// compared by powers of two, so that the choice does not change with each pod.
func (c *commonChains) heaviest(d model.Direction) []partKey {
	var all []partKey
	for k := range c.weighed {
		if k.direction == d {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b partKey) int {
		return cmp.Or(cmp.Compare(bits.Len(uint(c.parts[b].saves)), bits.Len(uint(c.parts[a].saves))), a.compare(b))
	})
	// No two may have one name.
	names := map[string]bool{}
	all = slices.DeleteFunc(all, func(k partKey) bool {
		p := c.parts[k]
		taken := names[p.Set] || names[tables.Target(p.Action)]
		names[p.Set], names[tables.Target(p.Action)] = true, true
		return taken
	})
	return all[:min(len(all), maxCommon)]
}

// weigh returns the number of rule visits that the part saves in the common chain, or
// zero if it is too small.
func (c *commonChains) weigh(k partKey, p *part, chains map[string]*appliedChain, apart map[string]bool) int {
	size, uses := 0, 0
	switch {
	case c.paused:
	case k.pods != "":
		chain := chains[k.pods]
		if chain == nil || !p.chains[k.pods] || apart[k.pods] {
			return 0
		}
		size, uses = c.sizeOf(k.direction, chain.applied), len(chain.addresses)
	case k.admin != "":
		size = c.sizeOf(k.direction, model.Applied{Admin: p.admin})
	default:
		size = c.sizes[rules.PolicySide{ID: k.policy, Direction: k.direction}]
	}
	if k.pods == "" {
		for key := range p.chains {
			// A chain with more addresses is a part of its own.
			if !apart[key] {
				uses += min(len(chains[key].addresses), 2)
			}
		}
	}
	// The common chain leads to it once for each family.
	if saves := size * (uses - 2); saves >= c.from {
		return saves
	}
	return 0
}

// sizeOf is how many rules a walk of a list's policies visits.
func (c *commonChains) sizeOf(d model.Direction, a model.Applied) int {
	size := 2
	for id := range a.All() {
		if n := c.sizes[rules.PolicySide{ID: id, Direction: d}]; n > 0 {
			size += 1 + n
		}
	}
	return size
}

// setMember decides whether an address is in the set of a part.
func (c *commonChains) setMember(k partKey, a netip.Addr, wanted bool) {
	p := c.parts[k]
	if p == nil || !p.common || p.members[a] == wanted {
		return
	}
	if c.changeMember(p, a, wanted) {
		c.resized.add(k)
	}
}

// resize replaces the sets of parts whose members have changed.
func (c *commonChains) resize() {
	for _, k := range c.resized.take(partKey.compare) {
		p := c.parts[k]
		if p == nil || !p.common || c.renderer.SetsWithRules() {
			continue
		}
		c.replaceSets(p)
		c.stale[k.direction] = true
	}
}

// complete renders the common chains that have changed.
func (c *commonChains) complete(hasRules func(model.Direction, model.PolicyID) bool) {
	c.resize()
	if len(c.stale) == 0 {
		return
	}
	for _, d := range model.Directions() {
		if !c.stale[d] {
			continue
		}
		var common rules.Common
		for _, k := range slices.SortedFunc(maps.Keys(c.chosen), partKey.compare) {
			p := c.parts[k]
			switch {
			case k.direction != d:
			case k.admin != "":
				common.Admin = append(common.Admin, p.Part)
				c.chains.UpdateChain(c.adminChain(k, p, hasRules))
			case k.pods != "":
				common.Pods = append(common.Pods, p.Part)
			default:
				common.Policies = append(common.Policies, p.Part)
			}
		}
		c.chains.UpdateChain(rules.RenderCommon(d, common))
	}
	clear(c.stale)
	maps.DeleteFunc(c.parts, func(_ partKey, p *part) bool { return len(p.chains) == 0 && !p.common })
}

func (c *commonChains) adminChain(k partKey, p *part, hasRules func(model.Direction, model.PolicyID) bool) tables.Chain {
	return c.renderer.AdminList(k.direction, p.admin, func(id model.PolicyID) bool {
		return hasRules != nil && hasRules(k.direction, id)
	})
}
