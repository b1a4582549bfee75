package nftables

import (
	"fmt"

	nft "github.com/google/nftables"

	"github.com/felixlike/felixlike/tables"
)

// op is one netlink message to come.
type op struct {
	about ObjectError // what it is about; Err is empty
	// weight is the number of objects in the message.
	weight int
	emit   func(*nft.Conn) error
}

// plan is the messages that turn what the kernel holds into what is wanted,
// in an order that it accepts: an object is there before it is referred to,
// and goes when nothing refers to it any more.
type plan struct {
	table  *nft.Table
	head   []group
	tail   group
	result tables.Result
	// rules are the rules of each written chain as they will be.
	rules map[string][]placedRule
}

// placedRule is a rule that stays, with its handle, or one that is sent, whose
// handle the kernel echoes into rule.
type placedRule struct {
	hash   string
	handle uint64
	rule   *nft.Rule
}

// plan compares what was touched with what the kernel holds.
func (t *Table) plan() (*plan, error) {
	p := &plan{table: t.kernelTable(), rules: map[string][]placedRule{}}
	t.planTable(p)
	sets, chains := t.touched()
	for _, s := range sets {
		if s.wanted && s.have == nil {
			p.createSet(s)
		}
	}
	for _, s := range sets {
		if s.wanted && !s.shape.verdicts {
			if err := p.changeMembers(s); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range chains {
		if c.want != nil && c.want.Hook == nil {
			p.createRegular(c)
		}
	}
	for _, c := range chains {
		if c.want != nil && c.want.Hook == nil {
			if err := p.editChain(c); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range sets {
		if s.wanted && s.shape.verdicts {
			if err := p.changeMembers(s); err != nil {
				return nil, err
			}
		}
	}
	return p, p.finish(sets, chains)
}

// touched returns the touched sets and chains, sorted by name.
func (t *Table) touched() (sets []*set, chains []*chain) {
	for _, name := range t.touchedSets.sorted() {
		if s, ok := t.sets[name]; ok {
			sets = append(sets, s)
		}
	}
	for _, name := range t.touchedChains.sorted() {
		if c, ok := t.chains[name]; ok {
			chains = append(chains, c)
		}
	}
	return sets, chains
}

// planTable makes the table exist, anew if a set has to change its type.
func (t *Table) planTable(p *plan) {
	about := ObjectError{Object: "table", Name: t.options.Table}
	rebuild := t.exists && t.mistyped()
	if rebuild {
		p.head = append(p.head, group{{about, 1, func(c *nft.Conn) error { c.DelTable(p.table); return nil }}})
	}
	if rebuild || !t.exists {
		t.adopt(&kernelState{})
		p.head = append(p.head, group{{about, 1, func(c *nft.Conn) error { c.AddTable(p.table); return nil }}})
	}
}

// mistyped reports whether a wanted set is in the kernel with another type.
func (t *Table) mistyped() bool {
	for name := range t.touchedSets {
		if s, ok := t.sets[name]; ok && s.wanted && s.have != nil && s.have.shape != s.shape {
			return true
		}
	}
	return false
}

// finish plans what must not be seen before all else is in place: base
// chains, and the removal of what is no longer wanted.
func (p *plan) finish(sets []*set, chains []*chain) error {
	for _, c := range chains {
		if c.want == nil && c.have != nil {
			p.flushChain(c)
		}
	}
	for _, s := range sets {
		if !s.wanted && s.have != nil {
			p.flushSet(s, &p.tail)
		}
	}
	for _, c := range chains {
		if c.want != nil && c.want.Hook != nil {
			if err := p.writeBase(c); err != nil {
				return err
			}
		}
	}
	for _, c := range chains {
		if c.want == nil && c.have != nil {
			p.deleteChain(c, &p.tail)
		}
	}
	for _, s := range sets {
		if !s.wanted && s.have != nil {
			k := &nft.Set{Table: p.table, Name: s.name}
			p.tail = append(p.tail, op{s.about(""), 1, func(c *nft.Conn) error { c.DelSet(k); return nil }})
		}
	}
	return nil
}

func (s *set) about(member string) ObjectError {
	return ObjectError{Object: s.shape.noun(), Name: s.name, Rule: member}
}

func (c *chain) about(rule string) ObjectError {
	return ObjectError{Object: "chain", Name: c.name, Rule: rule}
}

func (p *plan) createSet(s *set) {
	k := s.shape.kernelSet(p.table, s.name)
	p.head = append(p.head, group{{s.about(""), 1, func(c *nft.Conn) error { return c.AddSet(k, nil) }}})
}

// flushSet empties a set in the kernel. A verdict map must be empty before the
// chains that it leads to are deleted.
func (p *plan) flushSet(s *set, to *group) {
	k := &nft.Set{Table: p.table, Name: s.name}
	*to = append(*to, op{s.about(""), 1, func(c *nft.Conn) error { c.FlushSet(k); return nil }})
}

// changeMembers deletes before it adds: then neighbours of an interval set may
// share boundaries, and an entry whose verdict changes is never without one,
// because the kernel shows both changes at once. The changes of a set that is
// in use are one group; those of a new set may come in several transactions.
func (p *plan) changeMembers(s *set) error {
	var g group
	deletes, adds := s.members.diff()
	if s.have != nil && s.have.reload {
		p.flushSet(s, &g)
		deletes = nil
	}
	k := s.shape.kernelSet(p.table, s.name)
	err := eachMessage(s, deletes, func(o op, elements []nft.SetElement) {
		o.emit = func(c *nft.Conn) error { return c.SetDeleteElements(k, elements) }
		p.result.ElementsDeleted += o.weight
		g = append(g, o)
	})
	if err != nil {
		return err
	}
	err = eachMessage(s, adds, func(o op, elements []nft.SetElement) {
		o.emit = func(c *nft.Conn) error { return c.SetAddElements(k, elements) }
		p.result.ElementsAdded += o.weight
		g = append(g, o)
	})
	if err != nil {
		return err
	}
	if s.have != nil {
		p.head = append(p.head, g)
		return nil
	}
	for _, o := range g {
		p.head = append(p.head, group{o})
	}
	return nil
}

// eachMessage encodes changes of a set, as many at a time as go into one
// message.
func eachMessage(s *set, changes []change, add func(op, []nft.SetElement)) error {
	for len(changes) > 0 {
		now := changes[:min(len(changes), membersPerMessage)]
		changes = changes[len(now):]
		about := s.about(now[0].String())
		if len(now) > 1 {
			about.Rule = fmt.Sprintf("one of %d members from %s to %s", len(now), now[0].member, now[len(now)-1].member)
		}
		elements, err := encodeMembers(s.shape, now)
		if err != nil {
			about.Err = err
			return &about
		}
		add(op{about: about, weight: len(now)}, elements)
	}
	return nil
}

// createRegular makes a chain exist that is no base chain. One that was a base
// chain is deleted first: the kernel cannot take the hook off a chain.
func (p *plan) createRegular(c *chain) {
	if c.have != nil && c.have.base == (baseHook{}) {
		return
	}
	var g group
	if c.have != nil {
		p.deleteChain(c, &g)
	}
	p.addChain(c, &g)
	p.head = append(p.head, g)
}

func (p *plan) addChain(c *chain, to *group) {
	k := &nft.Chain{Name: c.name, Table: p.table}
	if b := base(c.want.Hook); c.want.Hook != nil {
		policy := nft.ChainPolicy(b.policy)
		k.Type, k.Policy = nft.ChainType(b.chainType), &policy
		k.Hooknum = nft.ChainHookRef(nft.ChainHook(b.hook))
		k.Priority = nft.ChainPriorityRef(nft.ChainPriority(b.priority))
	}
	*to = append(*to, op{c.about(""), 1, func(conn *nft.Conn) error { conn.AddChain(k); return nil }})
}

// flushChain deletes all rules of a chain, so that nothing it refers to is
// held any longer.
func (p *plan) flushChain(c *chain) {
	if len(c.have.rules) == 0 {
		return
	}
	k := &nft.Chain{Name: c.name, Table: p.table}
	p.result.RulesDeleted += len(c.have.rules)
	p.tail = append(p.tail, op{c.about(""), 1, func(conn *nft.Conn) error { conn.FlushChain(k); return nil }})
}

// deleteChain deletes a chain with its rules, if it still has any.
func (p *plan) deleteChain(c *chain, to *group) {
	k := &nft.Chain{Name: c.name, Table: p.table}
	*to = append(*to, op{c.about(""), 1, func(conn *nft.Conn) error { conn.DelChain(k); return nil }})
}

// writeBase makes a base chain be as wanted. Its hook cannot be changed, so
// another one takes its place in the same transaction.
func (p *plan) writeBase(c *chain) error {
	var old []kernelRule
	switch {
	case c.have == nil:
		p.addChain(c, &p.tail)
	case c.have.base != base(c.want.Hook):
		p.result.RulesDeleted += len(c.have.rules)
		p.deleteChain(c, &p.tail)
		p.addChain(c, &p.tail)
	default:
		old = c.have.rules
	}
	return p.editRules(c, old, &p.tail)
}

// editChain edits the rules of a regular chain.
func (p *plan) editChain(c *chain) error {
	var old []kernelRule
	if c.have != nil && c.have.base == (baseHook{}) {
		old = c.have.rules
	} else if c.have != nil {
		p.result.RulesDeleted += len(c.have.rules)
	}
	var g group
	if err := p.editRules(c, old, &g); err != nil {
		return err
	}
	p.head = append(p.head, g)
	return nil
}

// editRules deletes and inserts the fewest rules that turn the old ones into
// the wanted ones. Positions are given by the handles of rules that stay.
func (p *plan) editRules(c *chain, old []kernelRule, to *group) error {
	hashes := make([]string, len(old))
	for i, r := range old {
		hashes[i] = r.hash
	}
	script := minimalEdit(hashes, c.hashes)
	anchors := script.anchors()
	in := &nft.Chain{Name: c.name, Table: p.table}
	for _, i := range script.deletes {
		k := &nft.Rule{Table: p.table, Chain: in, Handle: old[i].handle}
		about := c.about(fmt.Sprintf("rule with handle %d", k.Handle))
		*to = append(*to, op{about, 1, func(conn *nft.Conn) error { return conn.DelRule(k) }})
		p.result.RulesDeleted++
	}
	placed := make([]placedRule, len(c.hashes))
	for i, hash := range c.hashes {
		if k := script.kept[i]; k >= 0 {
			placed[i] = placedRule{hash: hash, handle: old[k].handle}
			continue
		}
		o, rule, err := c.insertion(p.table, in, i)
		if err != nil {
			return err
		}
		if anchors[i] >= 0 {
			rule.Position = old[anchors[i]].handle
		}
		placed[i] = placedRule{hash: hash, rule: rule}
		*to = append(*to, o)
		p.result.RulesAdded++
	}
	p.rules[c.name] = placed
	return nil
}

// insertion returns the message that sends the wanted rule at an index: before
// the rule's Position if it has one, else at the end.
func (c *chain) insertion(table *nft.Table, in *nft.Chain, i int) (op, *nft.Rule, error) {
	r := c.want.Rules[i]
	exprs, err := encode(r)
	about := c.about(ruleName(i, r))
	if err != nil {
		about.Err = err
		return op{}, nil, &about
	}
	rule := &nft.Rule{Table: table, Chain: in, Exprs: exprs, UserData: comment(r)}
	return op{about, 1, func(conn *nft.Conn) error {
		if rule.Position != 0 {
			conn.InsertRule(rule)
		} else {
			conn.AddRule(rule)
		}
		return nil
	}}, rule, nil
}
