package nftables

import (
	"slices"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/edit"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// plan has the messages that turn the observed state into the desired one, in an order that the kernel
// accepts: an object comes before its references, and goes after them.
type plan struct {
	// rebuild says that the table is deleted first.
	rebuild bool
	// first are transactions before all others: they fill new interval sets, see ahead.
	first  []group
	head   []group
	tail   group
	result tables.Result
	// rules are the rules of each written chain as they will be. Those that are
	// sent have no handle before the kernel has echoed them.
	rules   map[string][]kernel.Rule
	digests *expression.Digester
	renewal renewal
}

// planner plans transactions that make the kernel's state the desired one.
type planner struct {
	*objects
	quarantine *quarantine
	digests    *expression.Digester
}

func (m *planner) newPlan() *plan {
	return &plan{rules: make(map[string][]kernel.Rule, len(m.dirtyChains)), digests: m.digests, renewal: renewal{map[string]string{}, map[string][]int{}}}
}

// plan compares the dirty objects with the kernel's. With renew, it changes no interval of a set in use.
func (m *planner) plan(renew bool) *plan {
	p := m.newPlan()
	m.planTable(p)
	if renew {
		m.renew(p)
	}
	sets, chains := m.dirty()
	for _, s := range sets {
		if s.desired && s.observed == nil {
			p.createSet(s)
		}
	}
	for _, s := range sets {
		if s.desired && !s.shape.Verdicts {
			p.changeMembers(s)
		}
	}
	for _, c := range chains {
		if c.desired != nil && c.desired.Hook == nil {
			p.createRegular(c)
		}
	}
	// New chains are filled before a rule leads to them: in a load of several transactions, no packet comes
	// to an empty one.
	for _, new := range []bool{true, false} {
		for _, c := range chains {
			if c.desired != nil && c.desired.Hook == nil && !c.reopens && new == c.idle() {
				var g group
				p.editChain(c, &g)
				if len(g) > 0 {
					p.head = append(p.head, g)
				}
			}
		}
	}
	for _, s := range sets {
		if s.desired && s.shape.Verdicts {
			p.changeMembers(s)
		}
	}
	p.finish(sets, chains)
	p.join()
	return p
}

// batches divides the plan into transactions.
func (p *plan) batches(limit int) [][]kernel.Op {
	return append(chunks(p.first, nil, limit), chunks(p.head, p.tail, limit)...)
}

// dirty returns the dirty sets and chains, sorted by name, but those that
// are left as they are.
func (m *planner) dirty() (sets []*set, chains []*chain) {
	for _, name := range m.dirtySets.sorted() {
		if s, ok := m.sets[name]; ok && !m.quarantine.leaves(kernel.SetUnit, name) {
			sets = append(sets, s)
		}
	}
	for _, name := range m.dirtyChains.sorted() {
		if c, ok := m.chains[name]; ok && !m.quarantine.leaves(kernel.ChainUnit, name) {
			chains = append(chains, c)
		}
	}
	return sets, chains
}

// planTable makes the table exist, anew if a set has to change its type.
func (m *planner) planTable(p *plan) {
	p.rebuild = m.exists && m.quarantine.mistyped()
	if p.rebuild {
		p.first = append(p.first, group{{Kind: kernel.DeleteTable}})
	}
	if p.rebuild || !m.exists {
		m.adopt(&kernel.State{})
		p.first = append(p.first, group{{Kind: kernel.AddTable}})
	}
}

// finish plans the operations that must come after all others: base chains, and the removal of objects that
// are no longer desired.
//
// Closed chains also open here: in a load of several transactions, they wait until all their references
// exist.
func (p *plan) finish(sets []*set, chains []*chain) {
	for _, c := range chains {
		if c.desired != nil && c.desired.Hook == nil && c.reopens {
			p.editChain(c, &p.tail)
		}
	}
	for _, c := range chains {
		if c.desired == nil && c.observed != nil {
			p.flushChain(c)
		}
	}
	for _, s := range sets {
		// Of others, the kernel would handle each element where it can drop the set.
		if !s.desired && s.observed != nil && (s.observed.shape.Verdicts || s.observed.shape == kernel.Shape{}) {
			p.flushSet(s, &p.tail)
		}
	}
	for _, c := range chains {
		if c.desired != nil && c.desired.Hook != nil {
			p.writeBase(c)
		}
	}
	for _, c := range chains {
		if c.desired == nil && c.observed != nil {
			p.deleteChain(c, &p.tail)
		}
	}
	for _, s := range sets {
		if !s.desired && s.observed != nil {
			p.tail = append(p.tail, s.op(kernel.DeleteSet))
		}
	}
}

// op returns the operation on the set.
func (s *set) op(kind kernel.OpKind) kernel.Op {
	return kernel.Op{Kind: kind, Name: s.name, Shape: s.shape}
}

func (s *set) memberOp(kind kernel.OpKind, changes []kernel.Change) kernel.Op {
	o := s.op(kind)
	o.Changes = changes
	return o
}

// perMessage returns how many members go into one message.
func (s *set) perMessage() int {
	if s.single {
		return 1
	}
	return kernel.MembersPerMessage
}

func (p *plan) createSet(s *set) {
	to := p.ahead(s)
	*to = append(*to, group{s.op(kernel.AddSet)})
}

// flushSet empties a set in the kernel. A verdict map must be empty before the
// chains that it leads to are deleted.
func (p *plan) flushSet(s *set, to *group) {
	*to = append(*to, s.op(kernel.FlushSet))
}

// changeMembers deletes before it adds: then neighbours of an interval set may share boundaries. An entry
// with a new verdict is never without one, because the kernel shows both changes at once. The changes of a
// set in use are one group; those of a new set may come in several transactions.
func (p *plan) changeMembers(s *set) {
	var g group
	deletes, adds := s.members.diff()
	p.result.ElementsDeleted += len(deletes)
	p.result.ElementsAdded += len(adds)
	switch {
	case p.renewal.renews(s.name):
		g = group{s.op(kernel.DeleteSet), s.op(kernel.AddSet)}
		deletes, adds = nil, s.members.sorted()
	case s.observed != nil && s.observed.reload:
		p.flushSet(s, &g)
		deletes = nil
	}
	for some := range slices.Chunk(deletes, s.perMessage()) {
		g = append(g, s.memberOp(kernel.DeleteMembers, some))
	}
	for some := range slices.Chunk(adds, s.perMessage()) {
		g = append(g, s.memberOp(kernel.AddMembers, some))
	}
	if s.observed != nil {
		if len(g) > 0 {
			p.head = append(p.head, g)
		}
		return
	}
	to := p.ahead(s)
	for i := range g {
		*to = append(*to, g[i:i+1])
	}
}

// createRegular makes a chain exist that is no base chain. One that was a base
// chain is deleted first: the kernel cannot take the hook off a chain.
func (p *plan) createRegular(c *chain) {
	if c.observed != nil && c.observed.Base == (kernel.BaseHook{}) {
		return
	}
	var g group
	if c.observed != nil {
		p.deleteChain(c, &g)
	}
	p.addChain(c, &g)
	p.head = append(p.head, g)
}

func (p *plan) addChain(c *chain, to *group) {
	*to = append(*to, kernel.Op{Kind: kernel.AddChain, Name: c.name, Hook: c.desired.Hook})
}

// flushChain deletes all rules of a chain, so that nothing it refers to is
// held any longer.
func (p *plan) flushChain(c *chain) {
	if len(c.observed.Rules) == 0 {
		return
	}
	p.result.RulesDeleted += len(c.observed.Rules)
	p.tail = append(p.tail, kernel.Op{Kind: kernel.FlushChain, Name: c.name})
}

// deleteChain deletes a chain with its rules, if it still has any.
func (p *plan) deleteChain(c *chain, to *group) {
	if p.renewal.any() {
		*to = append(*to, kernel.Op{Kind: kernel.FlushChain, Name: c.name}) // before sets go, see join
	}
	*to = append(*to, kernel.Op{Kind: kernel.DeleteChain, Name: c.name})
}

// writeBase makes a base chain be as desired. Its policy can be changed, its hook
// cannot, so another one takes its place in the same transaction.
func (p *plan) writeBase(c *chain) {
	var old []kernel.Rule
	switch wanted := kernel.BaseOf(c.desired.Hook); {
	case c.observed == nil:
		p.addChain(c, &p.tail)
	case c.observed.Base == wanted:
		old = c.checked(p.digests)
	case c.observed.Base.Hooked() == wanted.Hooked():
		p.addChain(c, &p.tail)
		old = c.checked(p.digests)
	default:
		p.result.RulesDeleted += len(c.observed.Rules)
		p.deleteChain(c, &p.tail)
		p.addChain(c, &p.tail)
	}
	p.editRules(c, old, &p.tail)
}

// editChain edits the rules of a regular chain.
func (p *plan) editChain(c *chain, to *group) {
	var old []kernel.Rule
	if c.observed != nil && c.observed.Base == (kernel.BaseHook{}) {
		old = c.checked(p.digests)
	} else if c.observed != nil {
		p.result.RulesDeleted += len(c.observed.Rules)
	}
	p.editRules(c, old, to)
}

// hashesAre reports whether the rules are those with the hashes.
func hashesAre(rules []kernel.Rule, hashes []string) bool {
	return slices.EqualFunc(rules, hashes, func(r kernel.Rule, hash string) bool { return r.Hash == hash })
}

// editRules deletes and inserts the fewest rules that turn the old ones into
// the desired ones. Positions are given by the handles of rules that stay.
func (p *plan) editRules(c *chain, old []kernel.Rule, to *group) {
	goal, wanted := c.goal()
	goal, old = p.rebind(c.name, goal, wanted, old)
	if hashesAre(old, wanted) {
		p.rules[c.name] = old
		return
	}
	hashes := make([]string, len(old))
	for i, r := range old {
		hashes[i] = r.Hash
	}
	script := edit.Minimal(hashes, wanted)
	stay := len(old) - len(script.Deletes)
	*to = slices.Grow(*to, len(script.Deletes)+len(wanted)-stay)
	anchors := script.Anchors()
	for _, i := range script.Deletes {
		*to = append(*to, kernel.Op{Kind: kernel.DeleteRule, Name: c.name, Handle: old[i].Handle})
		p.result.RulesDeleted++
	}
	rules := make([]kernel.Rule, len(wanted))
	for i, hash := range wanted {
		if k := script.Kept[i]; k >= 0 {
			rules[i] = old[k]
			continue
		}
		rules[i].Hash = hash
		o := kernel.Op{Kind: kernel.AddRule, Name: c.name, Index: i, Rule: &goal[i], Hash: hash, Echo: &rules[i]}
		if anchors[i] >= 0 {
			o.Handle = old[anchors[i]].Handle
		}
		*to = append(*to, o)
		p.result.RulesAdded++
	}
	p.rules[c.name] = rules
}
