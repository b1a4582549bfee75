package prove

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// ruleset is a table of netfilter, with the sets that its rules look up.
type ruleset struct {
	*space
	place  string
	table  *dump.Table
	chains map[string]*dump.Chain
	sets   map[string]*dump.Set
	// looked are sets of packets that were computed before.
	looked map[string]packets
	// summaries are the outcomes of chains for all packets of a state.
	summaries map[summaryKey]*outcome
	// asking says of chains and maps whether they ask for the connection.
	asking map[string]bool
}

// matches returns the packets that match a rule, of the packets in a state.
func (r *ruleset) matches(rule *tables.Rule, st state) (packets, error) {
	all := everything
	bound := *rule // nft does not list the family of a rule for ICMP
	if r.table.Dialect == dump.IPTables {
		bound.Matches = slices.DeleteFunc(slices.Clone(rule.Matches), func(m tables.Match) bool {
			_, is := m.(tables.MatchProtocol) // packets of IPv6 can have the protocol icmp
			return is
		})
	}
	if f := bound.Family(); f != 0 && f != r.family {
		return nothing, nil
	}
	for _, m := range rule.Matches {
		one, err := r.match(m, st)
		if err != nil {
			return nothing, err
		}
		if all = r.and(all, one); all == nothing {
			return all, nil
		}
	}
	return all, nil
}

// match returns the packets that match a condition.
func (r *ruleset) match(m tables.Match, st state) (packets, error) {
	found, err := r.asItIs(m, st)
	if err != nil || !readsSource(m) || !translated(st.nat) {
		return found, err
	}
	return r.rewritten(found, st.nat, m)
}

// rewritten returns the packets of a condition on their source, after it was rewritten.
func (r *ruleset) rewritten(some packets, to string, m tables.Match) (packets, error) {
	if a, err := netip.ParseAddr(to); err == nil {
		return r.whatever(r.sources, r.and(some, r.address(tables.Source, a, a))), nil
	}
	holds := map[bool]bool{}
	for _, a := range r.own {
		if model.FamilyOf(a) == r.family {
			holds[(r.and(some, r.address(tables.Source, a, a))) != nothing] = true
		}
	}
	if len(holds) == 1 {
		return r.when(holds[true]), nil
	}
	text := "the node's address: " + m.String()
	at := slices.Index(r.conditions, text)
	if at < 0 {
		if at = len(r.conditions); at == r.bits[flags] {
			return nothing, fmt.Errorf("%s: more than %d conditions on a rewritten source", m, spare)
		}
		r.conditions = append(r.conditions, text)
	}
	return r.variable(r.begin[flags] + at), nil
}

// asItIs returns the packets that match a condition, if nothing has rewritten their source.
func (r *ruleset) asItIs(m tables.Match, st state) (packets, error) {
	not := func(p packets, negated bool) packets {
		if negated {
			return r.not(p)
		}
		return p
	}
	switch m := m.(type) {
	case tables.MatchProtocol:
		return not(r.protocolPorts(m.Protocol, 0, 65535), m.Negated), nil
	case tables.MatchSYN:
		return not(r.and(r.protocolPorts(model.TCP, 0, 65535), r.flag(m)), m.Negated), nil
	case tables.MatchReset:
		return r.and(r.protocolPorts(model.TCP, 0, 65535), r.flag(m)), nil
	case tables.MatchDestinationPorts:
		return r.or(r.protocolPorts(model.TCP, m.First, m.Last), r.or(r.protocolPorts(model.UDP, m.First, m.Last), r.protocolPorts(model.SCTP, m.First, m.Last))), nil
	case tables.MatchICMP:
		first, last := uint16(m.Type)<<8|uint16(m.Code), uint16(m.Type)<<8|uint16(m.Code)
		if m.AnyCode {
			first, last = uint16(m.Type)<<8, uint16(m.Type)<<8|255
		}
		return r.or(r.protocolPorts(model.ICMP, first, last), r.protocolPorts(model.ICMPv6, first, last)), nil
	case tables.MatchPrefix:
		span := netipx.RangeOfPrefix(m.Prefix)
		return not(r.address(m.Side, span.From(), span.To()), m.Negated), nil
	case tables.MatchInterface:
		return not(r.named(m.Side, m.Name), m.Negated), nil
	case tables.MatchConnState:
		return r.when(m.States&st.conn.state != 0), nil
	case tables.MatchConnOriginal:
		return r.when(!st.conn.answer && st.conn.tracked()), nil
	case tables.MatchMark:
		return r.when((st.mark&m.Mask == m.Value) != m.Negated), nil
	case tables.MatchConnMark:
		return r.when(st.conn.tracked() && st.connMark&m.Mask == m.Value), nil
	case tables.MatchForwarded:
		return r.when(st.forwarded), nil
	case tables.MatchLocal:
		if len(r.local) > 0 {
			var some []owned
			for _, a := range r.local {
				some = r.ofFamily(some, netip.PrefixFrom(a, a.BitLen()))
			}
			own := r.any(end(m.Side), some)
			for _, p := range []string{"127.0.0.0/8", "::1/128", "fe80::/10"} { // the model does not have all of them
				own = r.or(own, r.and(r.prefixes(end(m.Side), []netip.Prefix{netip.MustParsePrefix(p)}), r.flag(m)))
			}
			return not(own, m.Negated), nil
		}
		return not(r.flag(m), m.Negated), nil
	case tables.MatchHopLimit:
		return not(r.flag(m), m.Negated), nil
	case tables.MatchConnDNAT:
		return r.and(r.when(st.conn.tracked()), r.flag(m)), nil
	case tables.MatchConnTranslated:
		if !st.late && st.conn.tracked() && (st.conn.known || st.conn.state != tables.StateNew) {
			return nothing, fmt.Errorf("%s: asked before postrouting", m)
		}
		return r.and(r.when(st.conn.tracked()), r.or(r.flag(m), r.when(translated(st.nat) || translated(st.bound)))), nil
	case tables.MatchConnSource:
		side := tables.Source
		if st.conn.answer {
			side = tables.Destination
		}
		if st.conn.state == tables.StateRelated { // another connection's, which the packet does not tell
			return r.flag(m), nil
		}
		span := netipx.RangeOfPrefix(m.Prefix)
		return r.and(r.when(st.conn.tracked()), r.address(side, span.From(), span.To())), nil
	case tables.MatchSet:
		return r.lookup(m.Set, m.Side, model.Addresses, model.Networks)
	case tables.MatchPortSet:
		return r.lookup(m.Set, 0, model.AddressPorts)
	case tables.MatchLoop:
		return r.lookup(m.Set, 0, model.Loops)
	case tables.MatchSender:
		return r.lookup(m.Set, 0, model.Senders)
	case tables.MatchGrant:
		return r.granted(m)
	case nil:
		return nothing, fmt.Errorf("a condition is missing")
	}
	return nothing, fmt.Errorf("%s: a condition that the proof does not know", m)
}

// readsSource reports whether a condition reads the source of a packet.
func readsSource(m tables.Match) bool {
	switch m := m.(type) {
	case tables.MatchPrefix:
		return m.Side == tables.Source
	case tables.MatchSet:
		return m.Side == tables.Source
	case tables.MatchLocal:
		return m.Side == tables.Source
	case tables.MatchLoop, tables.MatchSender, tables.MatchGrant:
		return true
	}
	return false
}

func (r *ruleset) set(name string) (*dump.Set, error) {
	s := r.sets[name]
	switch {
	case s == nil:
		return nil, fmt.Errorf("there is no set %s: the listing is incomplete", name)
	case s.Kind == 0 || len(s.Foreign) > 0:
		return nil, fmt.Errorf("set %s has a form that the proof does not know", name)
	}
	return s, nil
}

// lookup returns the packets that match a set. kinds are the kinds that the condition allows; side chooses the address for sets of addresses.
func (r *ruleset) lookup(name string, side tables.Side, kinds ...model.GroupKind) (packets, error) {
	key := fmt.Sprint(name, " ", side)
	if found, known := r.looked[key]; known {
		return found, nil
	}
	s, err := r.set(name)
	if err != nil {
		return nothing, err
	}
	if !slices.Contains(kinds, s.Kind) || s.Family != 0 && s.Family != r.family {
		return nothing, fmt.Errorf("set %s is of IPv%s and of the kind %s, which no condition here looks up so", name, s.Family, s.Kind)
	}
	found := nothing
	switch s.Kind {
	case model.Addresses, model.Networks:
		found = r.any(end(side), r.owners(s))
	case model.AddressPorts:
		byPort := map[[2]uint32][]netip.Addr{}
		for _, e := range s.Elements {
			at := [2]uint32{uint32(e.Protocol), uint32(e.Port)}
			byPort[at] = append(byPort[at], e.Prefix.Addr())
		}
		for at, all := range byPort {
			found = r.or(found, r.and(r.protocolPorts(model.Protocol(at[0]), uint16(at[1]), uint16(at[1])), r.anyOf(destination, all)))
		}
	case model.Loops:
		for _, e := range s.Elements {
			one := []netip.Addr{e.Prefix.Addr()}
			found = r.or(found, r.and(r.anyOf(source, one), r.anyOf(destination, one)))
		}
	case model.Senders:
		for _, e := range s.Elements {
			at := slices.Index(r.macs, e.MAC)
			span := e.Range()
			found = r.or(found, r.and(r.span(mac, at, at, len(r.macs)), r.address(tables.Source, span.From(), span.To())))
		}
	default:
		return nothing, fmt.Errorf("set %s is of the kind %s, which no condition looks up so", name, s.Kind)
	}
	r.looked[key] = found
	return found, nil
}

// anyOf returns the packets with one of the addresses in a field.
func (r *ruleset) anyOf(f field, all []netip.Addr) packets {
	var some []owned
	for _, a := range all {
		if model.FamilyOf(a) == r.family {
			some = append(some, owned{interval: r.interval(a)})
		}
	}
	return r.any(f, some)
}

// byValue returns the packets by the verdict, or the number, of a map that their address leads to.
func (r *ruleset) byValue(s *dump.Set, side tables.Side) map[tables.Action]packets {
	groups := map[tables.Action][]owned{}
	for _, o := range r.owners(s) {
		v := s.Elements[o.element].Verdict
		groups[v] = append(groups[v], o)
	}
	out := map[tables.Action]packets{}
	for v, some := range groups {
		out[v] = r.any(end(side), some)
	}
	return out
}

// granted returns the packets that a set of grants allows.
func (r *ruleset) granted(m tables.MatchGrant) (packets, error) {
	if m.Family != r.family {
		return nothing, nil
	}
	key := m.String()
	if found, known := r.looked[key]; known {
		return found, nil
	}
	grants, err := r.set(m.Grants)
	if err != nil {
		return nothing, err
	}
	lists, err := r.set(m.Lists)
	if err != nil {
		return nothing, err
	}
	ofList, ofPeer := r.byValue(lists, m.Pod), map[tables.Action]packets{}
	if m.Peers != "" {
		peers, err := r.set(m.Peers)
		if err != nil {
			return nothing, err
		}
		ofPeer = r.byValue(peers, m.Peer())
	}
	perList := gathered[uint32]{}
	for _, e := range grants.Elements {
		g := e.Grant()
		one := everything
		if m.Peers != "" {
			p, known := ofPeer[tables.Number(g.Peers)]
			if !known {
				continue
			}
			one = p
		} else if g.Peers != 0 {
			continue
		}
		if !m.AnyPort {
			one = r.and(one, r.protocolPorts(g.Protocol, g.Port, g.Port))
		}
		perList.add(r.space, g.List, one)
	}
	found := gathered[bool]{true: {nothing}}
	for list, some := range joined(r.space, perList) {
		if pods, has := ofList[tables.Number(list)]; has {
			found.add(r.space, true, r.and(pods, some))
		}
	}
	r.looked[key] = joined(r.space, found)[true]
	return r.looked[key], nil
}
