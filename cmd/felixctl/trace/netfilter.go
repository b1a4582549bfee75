package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// hostPacket is a packet on its way through the host.
type hostPacket struct {
	Packet
	// in and out are interfaces; "" is none (the host itself).
	in, out string
	// mac is the MAC address of a neighbour that sent it, if that is known.
	mac  model.MAC
	mark uint32
	conn hostConn
	// local reports whether an address is the host's own.
	local func(netip.Addr) bool
	// masqueraded is the source of packets that the host masquerades.
	masqueraded netip.Addr
}

// hostConn is the host's connection of a packet.
type hostConn struct {
	state  tables.ConnState
	answer bool
	mark   uint32
	// source is that of the connection's first packet.
	source netip.Addr
	dnat   bool
}

// verdict of a chain.
type verdict uint8

const (
	goesOn verdict = iota
	accepted
	dropped
	// bound is the end of the search in chains of the type nat.
	bound
)

// netfilter walks a packet through the chains of one hook.
type netfilter struct {
	node    string
	packet  *hostPacket
	namer   Namer
	steps   []Step
	missed  []Miss
	ruleset *Ruleset
	base    *dump.Chain
	depth   int
}

// maxDepth is the kernel's NFT_JUMP_STACK_SIZE; a loop ends there.
const maxDepth = 16

// hook walks the base chains at a hook and reports whether the packet passes.
func (w *netfilter) hook(all []*Ruleset, at tables.HookPoint) (bool, error) {
	nat := false
	for _, e := range base(all, at, w.packet.Family()) {
		if e.chain.Hook.Type == tables.HookNAT.String() && (nat || w.packet.conn.state != tables.StateNew) {
			continue // the connection has its addresses already
		}
		if (at == tables.HookInput || at == tables.HookOutput) && !e.ruleset.ours(e.chain) && !slices.ContainsFunc(e.chain.Rules, func(r dump.Rule) bool { return r.Ours() }) {
			continue // the host's own rules for itself
		}
		w.ruleset, w.base, w.missed = e.ruleset, e.chain, nil
		v, err := w.chain(e.chain)
		switch {
		case err != nil:
			return false, err
		case v == dropped:
			return false, nil
		case v == bound:
			nat = true
		}
	}
	return true, nil
}

// chain walks a chain, and those that it leads to.
func (w *netfilter) chain(c *dump.Chain) (verdict, error) {
	if w.depth++; w.depth > maxDepth {
		return dropped, fmt.Errorf("%s: chain %s: more than %d chains deep", w.ruleset.place, c.Name, maxDepth)
	}
	defer func() { w.depth-- }()
	for i := range c.Rules {
		v, leave, err := w.rule(c, i+1)
		if err != nil || v != goesOn || leave {
			return v, err
		}
	}
	return goesOn, nil
}

// rule applies a rule. With leave, the chain is left without a verdict.
func (w *netfilter) rule(c *dump.Chain, number int) (v verdict, leave bool, err error) {
	r := &c.Rules[number-1]
	switch {
	case !r.Ours() && w.passedOurs(c, number):
		return goesOn, true, nil // the rest of the chain is not felixlike's
	case !r.Ours() && w.translatesDestination():
		return goesOn, false, nil // the packet is one that they have translated
	case r.Foreign != "":
		return dropped, false, w.ruleset.unknown(c, number, "it is not one that felixlike writes")
	}
	sets, because, err := w.matches(&r.Rule)
	if err != nil {
		return dropped, false, w.ruleset.unknown(c, number, err.Error())
	}
	policy, rule := Behind(r.Comment)
	if because != "" {
		if policy != "" && because != otherFamily && !w.decided(&r.Rule) {
			w.missed = append(w.missed, Miss{Policy: policy, PolicyRule: rule, Rule: r.String(), Because: because})
		}
		return goesOn, false, nil
	}
	step := Step{
		Node: w.node, Place: w.ruleset.place, Table: "chain " + c.Name, Number: number, Rule: r.String(), Comment: r.Comment,
		Policy: policy, PolicyRule: rule, Sets: sets,
	}
	return w.act(r.Action, step)
}

// decided reports whether a rule is for undecided packets, and an earlier rule has decided.
func (w *netfilter) decided(r *tables.Rule) bool {
	return slices.ContainsFunc(r.Matches, func(m tables.Match) bool {
		mark, ok := m.(tables.MatchMark)
		return ok && mark.Negated && w.packet.mark&mark.Mask == mark.Value
	})
}

// translatesDestination reports whether the base chain is one where the addresses of
// Services are translated: by kube-proxy, not by us.
func (w *netfilter) translatesDestination() bool {
	h := w.base.Hook
	return h.Type == tables.HookNAT.String() && h.Point == tables.HookPrerouting.String()
}

// passedOurs reports whether a rule of ours stands before rule number in a chain of
// another program.
func (w *netfilter) passedOurs(c *dump.Chain, number int) bool {
	return !w.ruleset.ours(c) && slices.ContainsFunc(c.Rules[:number-1], func(r dump.Rule) bool { return r.Ours() })
}

// act carries out an action, and takes down the step.
func (w *netfilter) act(a tables.Action, step Step) (v verdict, leave bool, err error) {
	p := w.packet
	done := func(effect string) { w.step(step, effect) }
	switch a := a.(type) {
	case tables.Accept:
		done("accept")
		if w.base.Hook.Type == tables.HookNAT.String() {
			return bound, false, nil
		}
		return accepted, false, nil
	case tables.Drop:
		done("drop")
		return dropped, false, nil
	case tables.Reject:
		done("reject with " + a.With.String())
		return dropped, false, nil
	case tables.Return:
		done("return")
		return goesOn, true, nil
	case tables.Jump:
		done("jump " + a.Chain)
		v, err := w.into(a.Chain)
		return v, false, err
	case tables.Goto:
		done("goto " + a.Chain)
		v, err := w.into(a.Chain)
		return v, true, err
	case tables.SetMark:
		p.mark = p.mark&^a.Mask | a.Value
		done(a.String())
	case tables.SetMarkAndReturn:
		p.mark = p.mark&^a.Mask | a.Value
		done(a.String())
		return goesOn, true, nil
	case tables.SetConnMark:
		p.conn.mark = p.conn.mark&^a.Mask | a.Value
		done(a.String())
	case tables.Report, tables.NoTrack: // NoTrack meets packets of tunnels only
		done(a.String())
	case tables.Dispatch:
		return w.dispatch(a, step)
	case tables.Masquerade:
		done("the source becomes the node's address")
		p.Source = p.masqueraded
		return bound, false, nil
	case tables.SourceNAT:
		done("the source becomes " + a.To.String())
		p.Source = a.To
		return bound, false, nil
	case tables.KeepSource:
		done("the source is kept")
		return bound, false, nil
	default:
		return dropped, false, fmt.Errorf("%s: %s: rule %d: unknown action %T", step.Place, step.Table, step.Number, a)
	}
	return goesOn, false, nil
}

func (w *netfilter) into(name string) (verdict, error) {
	c := w.ruleset.chains[name]
	if c == nil {
		return dropped, w.ruleset.missing("chain", name)
	}
	return w.chain(c)
}

// dispatch looks an address up in a verdict map.
func (w *netfilter) dispatch(a tables.Dispatch, step Step) (verdict, bool, error) {
	if a.Family != w.packet.Family() {
		return goesOn, false, nil
	}
	m := w.ruleset.sets[a.Map]
	if m == nil {
		return dropped, false, w.ruleset.missing("map", a.Map)
	}
	addr := w.address(a.Side)
	member, known, err := m.find(model.AddressMember(addr))
	if err != nil {
		return dropped, false, fmt.Errorf("%s: %w", w.ruleset.place, err)
	}
	if !known {
		w.step(step, fmt.Sprintf("%s is not in the map", addr))
		return goesOn, false, nil
	}
	step.Sets = append(step.Sets, Membership{Set: a.Map, Member: addr.String(), Owner: w.namer.Address(addr)})
	return w.act(m.exact[member], step)
}

func (w *netfilter) step(s Step, effect string) {
	s.Effect = effect
	if effect == "drop" {
		s.Missed = w.missed
	}
	w.steps = append(w.steps, s)
}

func (w *netfilter) address(s tables.Side) netip.Addr {
	if s == tables.Destination {
		return w.packet.Destination
	}
	return w.packet.Source
}

// matches reports the memberships that made a rule match, or the
// condition that did not.
func (w *netfilter) matches(r *tables.Rule) (sets []Membership, because string, err error) {
	if f := r.Family(); f != 0 && f != w.packet.Family() {
		return nil, otherFamily, nil
	}
	for _, m := range r.Matches {
		found, because, err := w.match(m)
		if err != nil || because != "" {
			return nil, because, err
		}
		sets = append(sets, found...)
	}
	return sets, "", nil
}

// otherFamily is the reason for a mismatch that needs no explanation.
const otherFamily = "it is for the other address family"

// match asks one condition.
func (w *netfilter) match(m tables.Match) (sets []Membership, because string, err error) {
	p := w.packet
	ok := false
	switch m := m.(type) {
	case tables.MatchSet, tables.MatchPortSet, tables.MatchLoop, tables.MatchSender:
		return w.lookup(m)
	case tables.MatchGrant:
		return w.granted(m)
	case tables.MatchProtocol:
		ok = (p.transport() == m.Protocol) != m.Negated
	case tables.MatchSYN:
		ok = p.asks() != m.Negated
	case tables.MatchReset:
		ok = false // no traced packet is a reset
	case tables.MatchDestinationPorts:
		ok = hasPorts(p.Protocol) && m.First <= p.Port && p.Port <= m.Last
	case tables.MatchICMP:
		kind, code := model.ICMPTypeAndCode(p.Port)
		ok = p.Protocol.IsICMP() && p.Conn != Related && m.Type == kind && (m.AnyCode || m.Code == code)
	case tables.MatchPrefix:
		ok = m.Prefix.Contains(w.address(m.Side)) != m.Negated
	case tables.MatchInterface:
		name := p.in
		if m.Side == tables.Destination {
			name = p.out
		}
		ok = interfaceMatches(m.Name, name) != m.Negated
	case tables.MatchConnState:
		ok = m.States&p.conn.state != 0
	case tables.MatchConnOriginal:
		ok = !p.conn.answer && p.conn.state != tables.StateInvalid
	case tables.MatchMark:
		ok = (p.mark&m.Mask == m.Value) != m.Negated
	case tables.MatchConnMark:
		ok = p.conn.state != tables.StateInvalid && p.conn.mark&m.Mask == m.Value
	case tables.MatchLocal:
		ok = p.local(w.address(m.Side)) != m.Negated
	case tables.MatchHopLimit:
		ok = m.Negated // the trace follows packets that routers forward
	case tables.MatchForwarded:
		ok = p.in != ""
	case tables.MatchConnSource:
		ok = p.conn.state != tables.StateInvalid && m.Prefix.Contains(p.conn.source)
	case tables.MatchConnDNAT, tables.MatchConnTranslated:
		ok = p.conn.dnat
	case nil:
		return nil, "", errors.New("a condition is missing")
	default:
		return nil, "", fmt.Errorf("unknown condition %T", m)
	}
	if !ok {
		because = w.fails(m)
	}
	return nil, because, nil
}

// fails says in words that a condition does not hold.
func (w *netfilter) fails(m tables.Match) string {
	switch m := m.(type) {
	case tables.MatchProtocol:
		if m.Negated {
			return fmt.Sprintf("the protocol is %s", w.packet.transport())
		}
		return fmt.Sprintf("the protocol is %s, not %s", w.packet.transport(), m.Protocol)
	case tables.MatchDestinationPorts:
		return fmt.Sprintf("the port is %d, not %s", w.packet.Port, model.PortRange{First: m.First, Last: m.Last, Protocol: w.packet.Protocol})
	case tables.MatchICMP:
		if w.packet.Conn != Related {
			kind, code := model.ICMPTypeAndCode(w.packet.Port)
			return fmt.Sprintf("the message is of type %d, code %d", kind, code)
		}
	}
	return m.String() + " does not hold"
}

// lookup asks a set.
func (w *netfilter) lookup(m tables.Match) (sets []Membership, because string, err error) {
	addr := w.packet.Destination
	wanted := model.AddressMember(addr)
	switch m := m.(type) {
	case tables.MatchSet:
		addr = w.address(m.Side)
		wanted = model.AddressMember(addr)
	case tables.MatchSender:
		addr = w.packet.Source
		wanted = model.AddressMember(addr)
		wanted.MAC = w.packet.mac
	case tables.MatchPortSet:
		wanted.Protocol, wanted.Port = w.packet.Protocol, w.packet.Port
	case tables.MatchLoop:
		if w.packet.Source != addr {
			return nil, "it is not from an address to itself", nil
		}
	}
	s, member, because, err := w.find(tables.SetOf(m), wanted, addr)
	if err != nil || because != "" {
		return nil, because, err
	}
	return []Membership{{Set: s.Name, Member: member.String(), Owner: w.namer.Address(addr), About: w.namer.Set(s.Name)}}, "", nil
}

// granted looks for a grant.
func (w *netfilter) granted(m tables.MatchGrant) (sets []Membership, because string, err error) {
	if w.packet.Family() != m.Family {
		return nil, otherFamily, nil
	}
	g := model.Grant{}
	for _, one := range []struct {
		name string
		side tables.Side
		to   *uint32
	}{{m.Lists, m.Pod, &g.List}, {m.Peers, m.Peer(), &g.Peers}} {
		if one.name == "" {
			continue
		}
		addr := w.address(one.side)
		s, member, because, err := w.find(one.name, model.AddressMember(addr), addr)
		if err != nil || because != "" {
			return nil, because, err
		}
		*one.to = s.number(member)
		sets = append(sets, Membership{Set: s.Name, Member: member.String(), Owner: w.namer.Address(addr), About: w.namer.Set(s.Name)})
	}
	if !m.AnyPort {
		g.Protocol, g.Port = w.packet.transport(), w.packet.Port
	}
	s := w.ruleset.sets[m.Grants]
	if s == nil {
		return nil, "", fmt.Errorf("there is no set %s", m.Grants)
	}
	_, found, err := s.find(g.Member())
	about := w.namer.Set(s.Name)
	if err != nil || !found {
		return nil, fmt.Sprintf("%s is not in %s", g, named("set "+s.Name, about)), err
	}
	return append(sets, Membership{Set: s.Name, Member: g.String(), About: about}), "", nil
}

// find finds a member in a set or map.
func (w *netfilter) find(name string, wanted model.Member, addr netip.Addr) (s *set, member model.Member, because string, err error) {
	if s = w.ruleset.sets[name]; s == nil {
		return nil, member, "", fmt.Errorf("there is no set %s", name)
	}
	member, found, err := s.find(wanted)
	if err != nil || !found {
		because = fmt.Sprintf("%s is not in %s", named(wanted.String(), w.namer.Address(addr)), named("set "+s.Name, w.namer.Set(s.Name)))
	}
	return s, member, because, err
}

func hasPorts(p model.Protocol) bool { return p == model.TCP || p == model.UDP || p == model.SCTP }

// interfaceMatches reports whether a name is the one of a condition, in which '*'
// at the end stands for all that begin with the rest.
func interfaceMatches(pattern, name string) bool {
	if n := len(pattern) - 1; n >= 0 && pattern[n] == '*' {
		return len(name) >= n && name[:n] == pattern[:n]
	}
	return pattern == name
}
