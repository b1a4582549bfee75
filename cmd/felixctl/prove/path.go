package prove

import (
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

// possible returns the packets that can take a way: without an interface at the end that is the host itself.
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
			if h := c.Hook; h != nil && !slices.Contains(hooks(), h.Point) && len(r.chains[c.Name].Rules) > 0 {
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

// split parts a chain into what is felixlike's, with all before it, and what other programs have behind. The kernel's own chains of iptables are
// theirs, with the policy, but for the rules that lead to ours.
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

type base struct {
	*ruleset
	chain *dump.Chain
}

func (n *netfilter) bases(at tables.HookPoint) (all []base) {
	for _, r := range n.all {
		for _, c := range r.table.Chains {
			if c.Hook != nil && c.Hook.Point == at.String() {
				all = append(all, base{r, r.chains[c.Name]})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b base) int { return int(a.chain.Hook.Priority) - int(b.chain.Hook.Priority) })
	return all
}

// sourceNAT is the kernel's NF_IP_PRI_NAT_SRC: there the source of a connection's later packets is rewritten, but for answers.
const sourceNAT = 100

// pass returns what becomes of all packets in a state on a way. Those of a known connection have the nat that their first packet got.
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
		for _, b := range n.bases(hook) {
			if hook == tables.HookPostrouting && b.chain.Hook.Priority >= sourceNAT && bound != "" {
				left = n.changed(left, rewrite)
			}
			var err error
			if left, err = n.base(b, left, done); err != nil {
				return nil, err
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
		if b.chain.Hook.Type == tables.HookNAT.String() && (st.nat != "" || st.conn.state != tables.StateNew) {
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

// memory is what connection tracking keeps of a connection, which decides about its later packets.
type memory struct {
	mark uint32
	nat  string
}

// final is what is compared of the end of a packet.
type final struct {
	verdict verdict
	memory
}

func (f final) String() string {
	if f.verdict == accepts && f.nat != "" {
		return fmt.Sprintf("%s, source %s", f.verdict, f.nat)
	}
	return string(f.verdict)
}

// finals merges states that are the same for whoever sends and receives packets.
func (n *netfilter) finals(w way, conn connection, m memory) (map[final]packets, error) {
	done, err := n.pass(w, state{conn: conn, connMark: m.mark, forwarded: w.forwarded}, m.nat)
	out := gathered[final]{}
	for e, p := range done {
		f := final{verdict: e.verdict}
		if e.verdict == accepts {
			f.mark = e.connMark
			if translated(e.nat) {
				f.nat = e.nat
			}
		}
		out.add(n.space, f, p)
	}
	return joined(n.space, out), err
}

// contexts are the states in which packets come.
func contexts() map[string]connection {
	return map[string]connection{
		"new":                {state: tables.StateNew},
		"established":        {state: tables.StateEstablished},
		"answer":             {state: tables.StateEstablished, answer: true},
		"related":            {state: tables.StateRelated},
		"related, an answer": {state: tables.StateRelated, answer: true},
		"invalid":            {state: tables.StateInvalid},
		"untracked":          {state: tables.StateUntracked},
	}
}

// compareNetfilter compares what netfilter does with all packets of all connections. Connections are followed from what their first packets leave
// in connection tracking, until nothing new is left there.
func (p *proof) compareNetfilter(s *space, sides [2]*netfilter) error {
	seen, next := map[memory]bool{{}: true}, []memory{{}}
	for len(next) > 0 {
		m := next[0]
		next = next[1:]
		for _, w := range ways() {
			possible := w.possible(s)
			for _, name := range slices.Sorted(maps.Keys(contexts())) {
				conn := contexts()[name]
				if m != (memory{}) && (conn.state == tables.StateNew || !conn.tracked()) {
					continue
				}
				var ends [2]map[final]packets
				for i, n := range sides {
					var err error
					if ends[i], err = n.finals(w, conn, m); err != nil {
						return err
					}
					for e := range ends[i] {
						left := e.memory
						if conn.state != tables.StateNew {
							left.nat = m.nat
						}
						if e.verdict == accepts && conn.tracked() && !seen[left] {
							seen[left] = true
							next = append(next, left)
						}
					}
				}
				if m.mark != 0 {
					name = fmt.Sprintf("%s, mark 0x%x", name, m.mark)
				}
				differences(p, s, w.name, name, possible, ends)
			}
		}
	}
	return nil
}
