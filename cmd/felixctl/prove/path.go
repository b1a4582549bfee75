package prove

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// way is a way of packets through the hooks of netfilter.
type way struct {
	name      string
	hooks     []tables.HookPoint
	forwarded bool
}

func ways() []way {
	return []way{
		{"through the host", []tables.HookPoint{tables.HookPrerouting, tables.HookForward, tables.HookPostrouting}, true},
		{"to the host", []tables.HookPoint{tables.HookPrerouting, tables.HookInput}, true},
		{"from the host", []tables.HookPoint{tables.HookOutput, tables.HookPostrouting}, false},
	}
}

// possible returns the packets that can take a way. Packets to the host have no out interface, packets from it no in interface.
func (w way) possible(s *space) packets {
	switch {
	case !w.forwarded:
		return s.interfaceIs(in, "")
	case w.hooks[1] == tables.HookInput:
		return s.interfaceIs(out, "")
	}
	return everything
}

// netfilter is the part of a state that judges packets of a family on the host.
type netfilter struct {
	*space
	all []*ruleset
}

// newNetfilter prepares a state.
func newNetfilter(s *space, st *dump.State) (*netfilter, error) {
	n := &netfilter{space: s}
	shared := map[string]*dump.Set{}
	for _, one := range st.IPSets {
		shared[one.Name] = one
	}
	for _, t := range st.Tables {
		r := &ruleset{
			space: s, table: t, chains: map[string]*dump.Chain{}, sets: map[string]*dump.Set{},
			looked: map[string]packets{}, summaries: map[summaryKey]*outcome{}, asking: map[string]bool{},
		}
		switch f := t.IPFamily(); {
		case t.Dialect == dump.IPTables && f != s.family:
			continue
		case t.Dialect == dump.IPTables:
			r.place, r.sets = fmt.Sprintf("iptables IPv%s %s", f, t.Name), shared
		case judged(t):
			r.place = fmt.Sprintf("table %s %s", t.Family, t.Name)
			for _, one := range t.Sets {
				r.sets[one.Name] = one
			}
		default:
			continue
		}
		if judged(t) && len(t.Foreign) > 0 {
			return nil, &NotProved{r.place, "it has an object that felixlike does not write: " + t.Foreign[0]}
		}
		for _, c := range t.Chains {
			r.chains[c.Name], _ = split(t, c)
			if h := c.Hook; h != nil && !slices.Contains(hooks(), h.Point) && (len(r.chains[c.Name].Rules) > 0 || c.Policy == "drop") {
				return nil, &NotProved{r.place + " chain " + c.Name, "the hook " + h.Point + " is none that the proof knows"}
			}
		}
		n.all = append(n.all, r)
	}
	return n, nil
}

// hooks are the hooks that packets pass on some way.
func hooks() (all []string) {
	for _, w := range ways() {
		for _, h := range w.hooks {
			all = append(all, h.String())
		}
	}
	return all
}

// ours reports whether a table of nftables is private to felixlike, and judged whether the proof walks it: the table of Services translates, and frames of
// bridges are no packets.
func ours(t *dump.Table) bool {
	return t.Dialect == dump.NFT && (t.Family == "inet" || t.Family == "bridge") && (t.Name == nftables.DefaultTable || strings.HasPrefix(t.Name, nftables.DefaultTable+"-"))
}

func judged(t *dump.Table) bool {
	return ours(t) && t.Family == "inet" && t.Name != rules.ServicesTable
}

// split cuts a chain of iptables after its last rule that is felixlike's or leads to felixlike's chains. The rest, and the chain's policy, belong to
// others. A chain of nftables, or of felixlike, is not cut.
func split(t *dump.Table, c *dump.Chain) (ours, others *dump.Chain) {
	if t.Dialect == dump.NFT || strings.HasPrefix(c.Name, iptables.Prefix) {
		return c, &dump.Chain{}
	}
	end := 0
	for i := range c.Rules {
		if c.Rules[i].Ours() || strings.HasPrefix(tables.Target(c.Rules[i].Action), iptables.Prefix) {
			end = i + 1
		}
	}
	if c.Hook == nil {
		end = len(c.Rules) // it counts where a rule before ours leads to it
	}
	first, rest := *c, *c
	first.Rules, rest.Rules, first.Policy = c.Rules[:end], c.Rules[end:], ""
	return &first, &rest
}

// base is a base chain. All chains of the type nat at a hook run at one priority of the kernel, ordered among themselves by their own.
type base struct {
	*ruleset
	chain    *dump.Chain
	priority int32
}

// Priorities of the kernel (uapi/linux/netfilter_ipv4.h). At sourceNAT the source of a connection's later packets is rewritten, but for answers.
const (
	connTrack      = -200
	destinationNAT = -100
	sourceNAT      = 100
)

func (n *netfilter) bases(at tables.HookPoint) (all []base, err error) {
	for _, r := range n.all {
		for _, c := range r.table.Chains {
			if c.Hook == nil || c.Hook.Point != at.String() || beforeDNAT(r.table, c) {
				continue
			}
			b := base{r, r.chains[c.Name], int32(c.Hook.Priority)}
			switch {
			case c.Hook.Type != tables.HookNAT.String():
			case at == tables.HookPrerouting || at == tables.HookOutput:
				b.priority = destinationNAT
			default:
				b.priority = sourceNAT
			}
			all = append(all, b)
			if at == tables.HookPrerouting && r.mentions(c.Name, map[string]bool{}) {
				return nil, &NotProved{r.place + " chain " + c.Name, "it asks for the interface that packets leave by, which is not known there"}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b base) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.chain.Hook.Priority, b.chain.Hook.Priority))
	})
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.priority == b.priority && a.chain.Hook.Priority == b.chain.Hook.Priority && len(a.chain.Rules) > 0 && len(b.chain.Rules) > 0 {
			return nil, &NotProved{b.place + " chain " + b.chain.Name, fmt.Sprintf("it has the priority of %s chain %s, and a listing does not tell which comes first", a.place, a.chain.Name)}
		}
	}
	return all, nil
}

// mentions reports whether a chain, or one that it leads to, asks for the interface that packets leave by.
func (r *ruleset) mentions(name string, seen map[string]bool) bool {
	c := r.chains[name]
	if c == nil || seen[name] {
		return false
	}
	seen[name] = true
	into := func(a tables.Action) bool {
		switch a := a.(type) {
		case tables.Jump:
			return r.mentions(a.Chain, seen)
		case tables.Goto:
			return r.mentions(a.Chain, seen)
		case tables.Dispatch:
			if s := r.sets[a.Map]; s != nil {
				return slices.ContainsFunc(s.Elements, func(e dump.Element) bool {
					to, _ := e.Verdict.(tables.Goto)
					also, _ := e.Verdict.(tables.Jump)
					return r.mentions(to.Chain, seen) || r.mentions(also.Chain, seen)
				})
			}
		}
		return false
	}
	return slices.ContainsFunc(c.Rules, func(rule dump.Rule) bool {
		return into(rule.Action) || slices.ContainsFunc(rule.Matches, func(m tables.Match) bool {
			i, is := m.(tables.MatchInterface)
			return is && i.Side == tables.Destination
		})
	})
}

// pass returns the ends of all packets of a state on a way. bound is the NAT of the connection's first packet, "" for none.
func (n *netfilter) pass(w way, st state, bound string) (map[ended]packets, error) {
	done, left := gathered[ended]{}, map[state]packets{st: everything}
	rewrite := func(st *state) {
		if st.conn.tracked() && !st.conn.answer { // a rule may have set it to untracked
			st.nat = bound
		}
	}
	for _, hook := range w.hooks {
		if hook == tables.HookPostrouting {
			left = n.changed(left, func(st *state) { st.bound, st.late = bound, true })
		}
		bases, err := n.bases(hook)
		if err != nil {
			return nil, err
		}
		early := hook == tables.HookPrerouting || hook == tables.HookOutput
		for _, b := range bases {
			if hook == tables.HookPostrouting && b.priority >= sourceNAT && bound != "" {
				left = n.changed(left, rewrite)
			}
			if early && b.priority <= connTrack { // the packet has no connection yet: it is invalid, unless a rule says untracked
				left = n.changed(left, func(one *state) {
					if one.conn.state != tables.StateUntracked {
						one.conn = connection{state: tables.StateInvalid}
					}
				})
			}
			if left, err = n.base(b, left, done); err != nil {
				return nil, err
			}
			if early && b.priority <= connTrack {
				left = n.changed(left, func(one *state) {
					if one.conn.state != tables.StateUntracked {
						one.conn = st.conn
					}
				})
			}
		}
	}
	if bound != "" && w.hooks[len(w.hooks)-1] == tables.HookPostrouting {
		left = n.changed(left, rewrite)
	}
	for st, some := range left {
		done.add(n.space, ended{accepts, st}, some)
	}
	return joined(n.space, done), nil
}

// changed changes the states of packets.
func (n *netfilter) changed(left map[state]packets, change func(*state)) map[state]packets {
	next := gathered[state]{}
	for st, some := range left {
		change(&st)
		next.add(n.space, st, some)
	}
	return joined(n.space, next)
}

// base leads packets through a base chain, and returns those that go on.
func (n *netfilter) base(b base, left map[state]packets, done gathered[ended]) (map[state]packets, error) {
	next := gathered[state]{}
	for st, some := range left {
		if b.chain.Hook.Type == tables.HookNAT.String() && (st.nat != "" || st.conn.state != tables.StateNew || st.conn.known) {
			next.add(n.space, st, some)
			continue
		}
		o, err := b.ruleset.chain(b.chain.Name, st, 1)
		if err != nil {
			return nil, err
		}
		for e, p := range o.ended {
			if p = n.and(p, some); e.verdict == accepts || e.verdict == binds {
				next.add(n.space, e.state, p)
			} else {
				done.add(n.space, e, p)
			}
		}
		for st, p := range o.back {
			if p = n.and(p, some); b.chain.Policy == "drop" {
				done.add(n.space, ended{drops, st}, p)
			} else {
				next.add(n.space, st, p)
			}
		}
	}
	return joined(n.space, next), nil
}

// memory is what conntrack keeps of a connection and later packets depend on. A first packet leaves it only if it is accepted.
type memory struct {
	mark uint32
	nat  string
}

// final is the end of a packet as the proof compares it.
type final struct {
	verdict verdict
	memory
	// packetMark is the packet's mark but for the bits that felixlike uses on the way.
	packetMark uint32
}

func (f final) String() string {
	if f.verdict == accepts && f.nat != "" {
		return fmt.Sprintf("%s, source %s", f.verdict, f.nat)
	}
	return string(f.verdict)
}

// finals runs pass, and merges ends that differ only in what no peer and no later packet can observe.
func (n *netfilter) finals(w way, conn connection, m memory) (map[final]packets, error) {
	done, err := n.pass(w, state{conn: conn, connMark: m.mark, forwarded: w.forwarded}, m.nat)
	out := gathered[final]{}
	for e, p := range done {
		f := final{verdict: e.verdict}
		if e.verdict == accepts || conn.known || conn.state != tables.StateNew {
			f.mark = e.connMark
		}
		if e.verdict == accepts {
			f.packetMark = e.mark &^ ownMarks
			if translated(e.nat) {
				f.nat = e.nat
			}
		}
		out.add(n.space, f, p)
	}
	return n.answered(joined(n.space, out)), err
}

// answered counts packets as rejected if they are dropped only because the rate of answers is used up.
func (n *netfilter) answered(ends map[final]packets) map[final]packets {
	rate := []int{n.flagAt(rateUsedUp)}
	for f, p := range ends {
		if f.verdict == accepts || f.verdict == drops {
			continue
		}
		silent := f
		silent.verdict = drops
		some := n.and(n.whatever(rate, p), ends[silent])
		ends[silent], ends[f] = n.without(ends[silent], some), n.or(p, some)
	}
	return ends
}

// contexts are the states in which packets come.
func contexts() map[string]connection {
	return map[string]connection{
		"new":                {state: tables.StateNew},
		"new, not answered":  {state: tables.StateNew, known: true},
		"established":        {state: tables.StateEstablished},
		"answer":             {state: tables.StateEstablished, answer: true},
		"related":            {state: tables.StateRelated},
		"related, an answer": {state: tables.StateRelated, answer: true},
		"invalid":            {state: tables.StateInvalid},
		"untracked":          {state: tables.StateUntracked},
	}
}

// following are connections whose packets are still to be compared.
type following struct {
	*proof
	*space
	sides [2]*netfilter
	seen  map[memory]bool
	next  []memory
}

// compareNetfilter compares what netfilter does with all packets of all connections. Connections are followed from what their first packets leave
// in connection tracking, until nothing new is left there.
func (p *proof) compareNetfilter(s *space, sides [2]*netfilter) error {
	c := &following{p, s, sides, map[memory]bool{{}: true}, []memory{{}}}
	for _, w := range ways() {
		if err := c.begin(w); err != nil {
			return err
		}
	}
	for len(c.next) > 0 {
		m := c.next[0]
		c.next = c.next[1:]
		for _, w := range ways() {
			for _, name := range slices.Sorted(maps.Keys(contexts())) {
				conn := contexts()[name]
				if conn.state == tables.StateNew || m != (memory{}) && !conn.tracked() {
					continue
				}
				if err := c.compare(w, name, conn, m, c.possible(w), func(left memory, _ packets) {
					if conn.tracked() {
						c.follow(left)
					}
				}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// possible returns the packets that can take a way. The host routes packets for a pod of any node to that pod, never to itself.
func (c *following) possible(w way) packets {
	all := w.possible(c.space)
	if w.hooks[len(w.hooks)-1] != tables.HookInput || len(c.models) == 0 {
		return all
	}
	pods := everything
	for _, m := range c.models {
		pods = c.and(pods, c.prefixes(destination, append(podsOf(m), podNetworks(m)...)))
	}
	return c.without(all, c.without(pods, c.prefixes(destination, singles(c.local))))
}

func (c *following) follow(m memory) {
	if !c.seen[m] {
		c.seen[m] = true
		c.next = append(c.next, m)
	}
}

// begin compares the packets of connections before the first answer: the first packet, and later ones with the memory that it left.
func (c *following) begin(w way) error {
	conn := contexts()["new"]
	begun := map[memory]packets{}
	next := gathered[memory]{}
	leave := func(left memory, some packets) {
		c.follow(left)
		next.add(c.space, left, some)
	}
	if err := c.compare(w, "new", conn, memory{}, c.possible(w), leave); err != nil {
		return err
	}
	conn.known = true
	for len(next) > 0 {
		now := joined(c.space, next)
		next = gathered[memory]{}
		for m, some := range now {
			some = c.whatever([]int{c.flagAt(rateUsedUp)}, some)
			if old, has := begun[m]; has {
				if some = c.without(some, old); some == nothing {
					continue
				}
				begun[m] = c.or(old, some)
			} else {
				begun[m] = some
			}
			if err := c.compare(w, "new, not answered", conn, m, some, leave); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare compares some packets of connections with a memory, and tells which memory is left of which of them.
func (c *following) compare(w way, name string, conn connection, m memory, some packets, leave func(memory, packets)) error {
	if c.full || len(c.seen) > mostStates {
		return &NotProved{"the marks of connections", fmt.Sprintf("more than %d states that packets leave, or 1 GB of memory", mostStates)}
	}
	first := conn.state == tables.StateNew && !conn.known
	var ends [2]map[final]packets
	for i, n := range c.sides {
		var err error
		if ends[i], err = n.finals(w, conn, m); err != nil {
			return err
		}
		for e, p := range ends[i] {
			left := e.memory
			if !first {
				left.nat = m.nat
			}
			if p = c.and(p, some); p != nothing && (e.verdict == accepts || !first) {
				leave(left, p)
			}
		}
	}
	if m.mark != 0 {
		name = fmt.Sprintf("%s, mark 0x%x", name, m.mark)
	}
	differences(c.proof, c.space, w.name, name, some, ends)
	return nil
}

// ownMarks are the bits of packet marks that felixlike's rules use on the way.
const ownMarks = rules.MarkPass | rules.MarkMasquerade | rules.MarkJudged | rules.MarkRejected | rules.MarkBelieved | rules.MarkAway | rules.MarkAllowed | rules.MarkSettled | rules.MarkUntranslated
