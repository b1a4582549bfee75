package prove

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// connection is what connection tracking knows of the connection of a packet when it comes.
type connection struct {
	state  tables.ConnState
	answer bool
	// known is set if packets of the connection have passed before.
	known bool
}

func (c connection) tracked() bool {
	return c.state != tables.StateInvalid && c.state != tables.StateUntracked
}

// state is what packets on their way through the rules have in common.
type state struct {
	conn           connection
	mark, connMark uint32
	// nat is the new source, "" if undecided. bound is the NAT of the connection's first packet. bound and late are set from
	// postrouting on only, so that earlier chains are walked once for all values.
	nat, bound string
	late       bool
	forwarded  bool
}

// kept is the nat of a source that nothing rewrites.
const kept = "kept"

// translated reports whether a nat rewrites the source.
func translated(nat string) bool { return nat != "" && nat != kept }

// verdict is how packets end.
type verdict string

// The verdicts of chains. Reject has another one for each answer.
const (
	accepts verdict = "accepted"
	drops   verdict = "dropped"
	// binds is the end of the search in chains of the type nat.
	binds verdict = "bound"
)

// ended are packets that a chain has decided.
type ended struct {
	verdict
	state
}

// outcome is what becomes of packets in a chain: those that come back from it, and those that have ended. next are those that go on behind
// a map of verdicts.
type outcome struct {
	next, back map[state]packets
	ended      map[ended]packets
}

type summaryKey struct {
	chain string
	state state
}

// mostStates bounds the different states in one chain, and the memories of connections of one proof.
const mostStates = 1024

// maxDepth is the kernel's NFT_JUMP_STACK_SIZE.
const maxDepth = 16

// gathered are sets of packets by what they have in common, before they are joined.
type gathered[K comparable] map[K][]packets

func (g gathered[K]) add(s *space, key K, some packets) {
	if some != nothing {
		g[key] = append(g[key], some)
	}
}

// joined joins the sets of each key, neighbours first: many small unions cost less than one large set that grows.
func joined[K comparable](s *space, g gathered[K]) map[K]packets {
	all := make(map[K]packets, len(g))
	for key, list := range g {
		for len(list) > 1 {
			var next []packets
			for i := 0; i < len(list); i += 2 {
				if i+1 == len(list) {
					next = append(next, list[i])
				} else {
					next = append(next, s.or(list[i], list[i+1]))
				}
			}
			list = next
		}
		all[key] = list[0]
	}
	return all
}

// ends are packets on their way through a chain: those that go on with the next rule, those that come back from it, and those that have ended.
type ends struct {
	next, back gathered[state]
	ended      gathered[ended]
}

// once returns the outcome of a chain or a map for all packets of a state, which walk computes. It is computed once for all connections if nothing that it
// leads to asks for the connection.
func (r *ruleset) once(name string, st state, walk func(state) (*outcome, error)) (*outcome, error) {
	of, asks := st, r.asks(name)
	if !asks {
		of = state{mark: st.mark, nat: st.nat}
	}
	key := summaryKey{name, of}
	if r.summaries[key] == nil {
		o, err := walk(of)
		if err != nil {
			return nil, err
		}
		r.summaries[key] = o
	}
	o := r.summaries[key]
	if asks {
		return o, nil
	}
	as := func(all map[state]packets) map[state]packets {
		out := make(map[state]packets, len(all))
		for s, p := range all {
			out[st.with(s.mark, s.nat)] = p
		}
		return out
	}
	out := &outcome{next: as(o.next), back: as(o.back), ended: make(map[ended]packets, len(o.ended))}
	for e, p := range o.ended {
		out.ended[ended{e.verdict, st.with(e.mark, e.nat)}] = p
	}
	return out, nil
}

func (st state) with(mark uint32, nat string) state {
	st.mark, st.nat = mark, nat
	return st
}

// asks reports whether a chain or a map, or one that it leads to, asks for the connection of a packet or changes it.
func (r *ruleset) asks(name string) bool {
	known, has := r.asking[name]
	if has {
		return known
	}
	r.asking[name] = true // one in a circle
	is := false
	if m, isMap := strings.CutPrefix(name, mapOf); isMap {
		if s := r.sets[m]; s != nil {
			for i := range s.Elements {
				is = is || r.actionAsks(s.Elements[i].Verdict)
			}
		}
	} else if c := r.chains[name]; c != nil {
		for i := range c.Rules {
			is = is || slices.ContainsFunc(c.Rules[i].Matches, asksConnection) || r.actionAsks(c.Rules[i].Action)
		}
	}
	r.asking[name] = is
	return is
}

// mapOf is in front of the name of a map of verdicts.
const mapOf = "map "

func (r *ruleset) actionAsks(a tables.Action) bool {
	switch a := a.(type) {
	case tables.Jump:
		return r.asks(a.Chain)
	case tables.Goto:
		return r.asks(a.Chain)
	case tables.Dispatch:
		return r.asks(mapOf + a.Map)
	case tables.SetConnMark, tables.NoTrack:
		return true
	}
	return false
}

// asksConnection reports whether a condition is one on the connection, or on what comes with it in a state.
func asksConnection(m tables.Match) bool {
	switch m.(type) {
	case tables.MatchProtocol, tables.MatchSYN, tables.MatchReset, tables.MatchDestinationPorts, tables.MatchICMP, tables.MatchPrefix, tables.MatchInterface, tables.MatchMark, tables.MatchLocal,
		tables.MatchHopLimit, tables.MatchSet, tables.MatchPortSet, tables.MatchLoop, tables.MatchSender, tables.MatchGrant:
		return false
	}
	return true
}

// chain returns what becomes of all packets in a state that enter a chain.
func (r *ruleset) chain(name string, st state, depth int) (*outcome, error) {
	return r.once(name, st, func(st state) (*outcome, error) { return r.walk(name, st, depth) })
}

func (r *ruleset) walk(name string, st state, depth int) (*outcome, error) {
	c := r.chains[name]
	if c == nil {
		return nil, &NotProved{r.place, fmt.Sprintf("there is no chain %s: the listing is incomplete", name)}
	}
	if depth > maxDepth {
		return nil, &NotProved{r.place + " chain " + name, fmt.Sprintf("more than %d chains deep", maxDepth)}
	}
	out := ends{back: gathered[state]{}, ended: gathered[ended]{}}
	left := map[state]packets{st: everything}
	for i := range c.Rules {
		rule := &c.Rules[i]
		place := fmt.Sprintf("%s chain %s rule %d", r.place, name, i+1)
		if rule.Foreign != "" {
			return nil, &NotProved{place, "felixlike does not write such a rule: " + rule.Foreign}
		}
		out.next = gathered[state]{}
		for st, some := range left {
			found, err := r.matches(&rule.Rule, st)
			if err != nil {
				return nil, refused(err, place)
			}
			found = r.and(found, some)
			if found == nothing {
				out.next.add(r.space, st, some)
				continue
			}
			out.next.add(r.space, st, r.without(some, found))
			if err := r.act(rule.Action, st, found, &out, depth); err != nil {
				return nil, refused(err, place)
			}
		}
		if left = joined(r.space, out.next); len(left) > mostStates || r.full {
			return nil, &NotProved{place, fmt.Sprintf("more than %d states of packets, or 1 GB of memory", mostStates)}
		}
	}
	for st, some := range left {
		out.back.add(r.space, st, some)
	}
	return &outcome{nil, joined(r.space, out.back), joined(r.space, out.ended)}, nil
}

// act carries out an action on packets in a state.
func (r *ruleset) act(action tables.Action, st state, some packets, out *ends, depth int) error {
	into := func(name string, back gathered[state]) error {
		o, err := r.chain(name, st, depth+1)
		if err != nil {
			return err
		}
		for st, p := range o.back {
			back.add(r.space, st, r.and(p, some))
		}
		for e, p := range o.ended {
			out.ended.add(r.space, e, r.and(p, some))
		}
		return nil
	}
	end := func(v verdict) { out.ended.add(r.space, ended{v, st}, some) }
	switch a := action.(type) {
	case tables.Accept:
		end(accepts)
	case tables.Drop:
		end(drops)
	case tables.Reject:
		answered := some
		switch {
		case a.Family != 0 && a.Family != r.family:
			answered = nothing
		case a.PerSecond > 0:
			answered = r.without(some, r.flagNamed(rateUsedUp))
		}
		out.ended.add(r.space, ended{verdict("rejected with " + a.With.String()), st}, answered)
		out.next.add(r.space, st, r.without(some, answered))
	case tables.Return:
		out.back.add(r.space, st, some)
	case tables.Jump:
		return into(a.Chain, out.next)
	case tables.Goto:
		return into(a.Chain, out.back)
	case tables.SetMark:
		st.mark = st.mark&^a.Mask | a.Value
		out.next.add(r.space, st, some)
	case tables.SetMarkAndReturn:
		st.mark = st.mark&^a.Mask | a.Value
		out.back.add(r.space, st, some)
	case tables.SetConnMark:
		if st.conn.tracked() {
			st.connMark = st.connMark&^a.Mask | a.Value
		}
		out.next.add(r.space, st, some)
	case tables.Report:
		out.next.add(r.space, st, some)
	case tables.NoTrack:
		if !st.conn.tracked() { // else the kernel lets the packet's connection be
			st.conn = connection{state: tables.StateUntracked}
		}
		out.next.add(r.space, st, some)
	case tables.Masquerade:
		st.nat = "masqueraded"
		end(binds)
	case tables.SourceNAT:
		st.nat = a.To.String()
		end(binds)
	case tables.KeepSource:
		if a.Family != r.family {
			out.next.add(r.space, st, some)
			return nil
		}
		st.nat = kept
		end(binds)
	case tables.Dispatch:
		return r.dispatch(a, st, some, out, depth)
	default:
		return fmt.Errorf("an action that the proof does not know: %v", action)
	}
	return nil
}

// dispatch leads packets on by a map of verdicts.
func (r *ruleset) dispatch(a tables.Dispatch, st state, some packets, out *ends, depth int) error {
	if a.Family != r.family {
		out.next.add(r.space, st, some)
		return nil
	}
	if a.Side == tables.Source && translated(st.nat) {
		return fmt.Errorf("%s: reads a source that was rewritten", a)
	}
	o, err := r.once(mapOf+a.Map, st, func(st state) (*outcome, error) { return r.byMap(a, st, depth) })
	if err != nil {
		return err
	}
	for st, p := range o.next {
		out.next.add(r.space, st, r.and(p, some))
	}
	for st, p := range o.back {
		out.back.add(r.space, st, r.and(p, some))
	}
	for e, p := range o.ended {
		out.ended.add(r.space, e, r.and(p, some))
	}
	return nil
}

// byMap returns what becomes of all packets in a state by a map of verdicts.
func (r *ruleset) byMap(a tables.Dispatch, st state, depth int) (*outcome, error) {
	m, err := r.set(a.Map)
	if err != nil {
		return nil, err
	}
	all, err := r.lookup(a.Map, a.Side, model.Addresses, model.Networks)
	if err != nil {
		return nil, err
	}
	out := ends{gathered[state]{}, gathered[state]{}, gathered[ended]{}}
	out.next.add(r.space, st, r.not(all))
	for v, found := range r.byValue(m, a.Side) {
		if _, nested := v.(tables.Dispatch); nested || v == nil {
			return nil, fmt.Errorf("map %s has no verdict for an element", a.Map)
		}
		if err := r.act(v, st, found, &out, depth); err != nil {
			return nil, err
		}
	}
	return &outcome{joined(r.space, out.next), joined(r.space, out.back), joined(r.space, out.ended)}, nil
}
