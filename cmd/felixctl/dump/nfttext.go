package dump

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// nftText writes the matches and the action of a typed rule as nft lists them, with
// counter between them.
func nftText(r tables.Rule, counter string) string {
	w := nftWriter{}
	for i, m := range r.Matches {
		w.match(m, r.Matches[i+1:])
	}
	w.binding(r.Action)
	switch a := r.Action.(type) {
	case tables.Report:
		w.limit(a.PerSecond)
	case tables.Reject:
		w.limit(a.PerSecond)
	}
	if counter != "" {
		w.add(counter)
	}
	w.action(r.Action)
	return strings.Join(w.words, " ")
}

type nftWriter struct {
	words []string
	// bound is the family that the rule is bound to so far.
	bound model.Family
	// protocol is the one that was matched but not written: nft writes it with the
	// port.
	protocol string
}

func (w *nftWriter) add(format string, args ...any) {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	w.words = append(w.words, format)
}

func nftIP(f model.Family) string { return either(f == model.IPv6, "ip6", "ip") }

func nftSide(s tables.Side) string { return either(s == tables.Source, "saddr", "daddr") }

func nftNot(negated bool) string { return either(negated, "!= ", "") }

func (w *nftWriter) match(m tables.Match, later []tables.Match) {
	switch m := m.(type) {
	case tables.MatchProtocol:
		name := nftProtocol(m.Protocol)
		for _, l := range later {
			switch l.(type) {
			case tables.MatchDestinationPorts, tables.MatchSYN, tables.MatchReset, tables.MatchICMP:
				if !m.Negated {
					w.bindSilently(m.Protocol)
					w.protocol = name
					return
				}
			}
		}
		if !m.Negated {
			w.bindSilently(m.Protocol)
		}
		w.add("meta l4proto %s%s", nftNot(m.Negated), name)
	case tables.MatchSYN:
		w.add("tcp flags %ssyn / fin,syn,rst,ack", nftNot(m.Negated))
	case tables.MatchReset:
		w.add("tcp flags & rst == rst")
	case tables.MatchDestinationPorts:
		ports := fmt.Sprint(m.First)
		if m.First != m.Last {
			ports = fmt.Sprintf("%d-%d", m.First, m.Last)
		}
		w.add("%s dport %s", w.protocol, ports)
	case tables.MatchICMP:
		w.icmp(m)
	case tables.MatchSet:
		w.bound = m.Family
		w.add("%s %s @%s", nftIP(m.Family), nftSide(m.Side), m.Set)
	case tables.MatchPortSet:
		w.bound = m.Family
		w.add("%s daddr . meta l4proto . th dport @%s", nftIP(m.Family), m.Set)
	case tables.MatchLoop:
		w.bound = m.Family
		w.add("%s saddr . %s daddr @%s", nftIP(m.Family), nftIP(m.Family), m.Set)
	case tables.MatchKey:
		w.bound = m.Family
		w.add("%s %s@%s", nftKey(m.Family, m.Key), nftNot(m.Negated), m.Set)
	case tables.MatchSender:
		w.bound = m.Family
		w.add("ether saddr . %s saddr @%s", nftIP(m.Family), m.Set)
	case tables.MatchGrant:
		w.grant(m)
	case tables.MatchPrefix:
		w.bound = model.FamilyOf(m.Prefix.Addr())
		w.add("%s %s %s%s", nftIP(w.bound), nftSide(m.Side), nftNot(m.Negated), nftPrefix(m.Prefix))
	case tables.MatchConnSource:
		f := model.FamilyOf(m.Prefix.Addr())
		w.bind(f)
		w.add("ct original %s saddr %s", nftIP(f), nftPrefix(m.Prefix))
	default:
		w.metaMatch(m)
	}
}

// grant writes the way of the numbers by the mark of the packet.
func (w *nftWriter) grant(m tables.MatchGrant) {
	w.bound = m.Family
	ip := nftIP(m.Family)
	w.add("meta mark set %s %s map @%s", ip, nftSide(m.Pod), m.Lists)
	if m.Peers != "" {
		w.add("meta mark set %s %s map @%s", ip, nftSide(m.Peer()), m.Peers)
	} else {
		w.add("meta mark set 0x00000000")
	}
	w.add("meta mark set meta mark meta mark . meta mark%s @%s", either(m.AnyPort, "", " . meta l4proto . th dport"), m.Grants)
}

// bindSilently notes the family that ICMP implies: nft does not write it.
func (w *nftWriter) bindSilently(p model.Protocol) {
	if f := p.ICMPFamily(); f != 0 {
		w.bound = f
	}
}

func (w *nftWriter) icmp(m tables.MatchICMP) {
	word := either(w.bound == model.IPv6, "icmpv6", "icmp")
	words := icmpWords(word)
	w.add("%s type %s", word, words.types.write(m.Type))
	if !m.AnyCode {
		w.add("%s code %s", word, words.codes.write(m.Code))
	}
}

func (w *nftWriter) metaMatch(m tables.Match) {
	switch m := m.(type) {
	case tables.MatchInterface:
		w.add("%s %s\"%s\"", either(m.Side == tables.Source, "iifname", "oifname"), nftNot(m.Negated), m.Name)
	case tables.MatchConnState:
		w.add("ct state %s", nftStates(m.States))
	case tables.MatchConnOriginal:
		w.add("ct direction original")
	case tables.MatchConnTranslated:
		w.add("ct status snat,dnat")
	case tables.MatchConnDNAT:
		w.add("ct status dnat")
	case tables.MatchHopLimit:
		w.bound = model.IPv6
		w.add("ip6 hoplimit %s%d", nftNot(m.Negated), m.Hops)
	case tables.MatchEtherType:
		w.add("meta protocol %s", nftEtherType(m.Type))
	case tables.MatchForwarded:
		w.add("iif != 0")
	case tables.MatchLocal:
		w.add("fib %s type %slocal", nftSide(m.Side), nftNot(m.Negated))
	case tables.MatchMark:
		w.add("meta mark %s", nftMasked(m.Value, m.Mask, m.Negated))
	case tables.MatchConnMark:
		w.add("ct mark %s", nftMasked(m.Value, m.Mask, false))
	default:
		w.add("%s", m) // there is none
	}
}

// nftStates writes states in nft's order.
func nftStates(s tables.ConnState) string {
	var names []string
	for _, one := range []tables.ConnState{tables.StateInvalid, tables.StateEstablished, tables.StateRelated, tables.StateNew, tables.StateUntracked} {
		if s&one != 0 {
			names = append(names, one.String())
		}
	}
	return strings.Join(names, ",")
}

func nftMasked(value, mask uint32, negated bool) string {
	if mask == ^uint32(0) {
		return fmt.Sprintf("%s0x%08x", nftNot(negated), value)
	}
	return fmt.Sprintf("& 0x%08x %s 0x%08x", mask, either(negated, "!=", "=="), value)
}

// nftEtherTypes are the types that nft lists by a name.
var nftEtherTypes = map[string]uint16{"ip": 0x0800, "arp": 0x0806, "ip6": 0x86dd}

func nftEtherType(t uint16) string {
	for name, n := range nftEtherTypes {
		if n == t {
			return name
		}
	}
	return fmt.Sprintf("0x%04x", t)
}

func nftProtocol(p model.Protocol) string {
	switch p {
	case model.ICMPv6:
		return "ipv6-icmp"
	case model.ICMP, model.TCP, model.UDP, model.SCTP:
		return p.String()
	}
	return strconv.Itoa(int(p))
}

// nftPrefix writes single addresses without a length.
func nftPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// bind writes the family, unless a match has said it.
func (w *nftWriter) bind(f model.Family) {
	if w.bound != f {
		w.bound = f
		w.add("meta nfproto ipv%s", f)
	}
}

// binding binds the rule to the family of its action.
func (w *nftWriter) binding(a tables.Action) {
	switch a := a.(type) {
	case tables.Dispatch:
		w.bind(a.Family)
	case tables.DispatchKey:
		if a.Frontend[0] == tables.UnspecifiedAddress {
			return // a match has said it
		}
		w.bind(a.Family)
	case tables.Translate:
		w.bind(a.Family)
	case tables.KeepSource:
		w.bind(a.Family)
	case tables.SourceNAT:
		w.bind(model.FamilyOf(a.To))
	case tables.Reject:
		if a.Family != 0 {
			w.bind(a.Family)
		}
	}
}

func (w *nftWriter) limit(perSecond uint32) {
	w.add("limit rate %d/second burst %d packets", perSecond, perSecond)
}

func (w *nftWriter) action(a tables.Action) {
	switch a := a.(type) {
	case tables.SetMark:
		w.add("meta mark set %s", nftAssigned("meta mark", a.Value, a.Mask))
	case tables.SetMarkAndReturn:
		w.action(tables.SetMark(a))
		w.action(tables.Return{})
	case tables.SetConnMark:
		w.add("ct mark set %s", nftAssigned("ct mark", a.Value, a.Mask))
	case tables.Report:
		w.add("log prefix \"%s\" group %d snaplen %d", a.Prefix, a.Group, a.Length)
	case tables.Reject:
		switch a.With {
		case tables.TCPReset:
			w.add("reject with tcp reset")
		case tables.PortUnreachable: // nft's default
			w.add("reject")
		default:
			w.add("reject with icmpx admin-prohibited")
		}
	case tables.DispatchKey:
		w.add("meta mark set %s . 0x%08x map @%s meta mark set meta mark meta mark vmap @%s", nftKey(a.Family, a.Frontend), a.Slot, a.Endpoints, a.Map)
	case tables.Translate:
		w.translate(a)
	case tables.SourceNAT:
		w.add("snat %s to %s", nftIP(model.FamilyOf(a.To)), a.To)
	case tables.KeepSource:
		w.add("snat %s to %s saddr", nftIP(a.Family), nftIP(a.Family))
	case tables.Dispatch:
		w.add("%s %s vmap @%s", nftIP(a.Family), nftSide(a.Side), a.Map)
	default: // the others have the words that nft has
		w.add("%s", a)
	}
}

// nftKey writes a concatenation.
func nftKey(f model.Family, k tables.Key) string {
	parts := make([]string, len(k))
	for i, field := range k {
		parts[i] = map[tables.Field]string{
			tables.SourceAddress: nftIP(f) + " saddr", tables.DestinationAddress: nftIP(f) + " daddr", tables.UnspecifiedAddress: nftUnspecified(f == model.IPv6),
			tables.TransportProtocol: "meta l4proto", tables.DestinationPort: "th dport",
		}[field]
	}
	return strings.Join(parts, " . ")
}

func nftUnspecified(six bool) string { return either(six, "::", "0.0.0.0") }

// translate writes an address and port of a map as the destination. Registers hold what nft knows only as the mark of the packet.
func (w *nftWriter) translate(a tables.Translate) {
	frontend := nftKey(a.Family, a.Frontend)
	number := "meta mark"
	drawn := fmt.Sprintf("numgen random mod %d", a.Count)
	if a.First > 0 {
		drawn += fmt.Sprintf(" offset %d", a.First)
	}
	client := fmt.Sprintf("%s saddr . %s", nftIP(a.Family), frontend)
	switch {
	case a.Recall:
		w.add("meta mark set %s map @%s meta mark set meta mark", client, a.Clients)
	case a.IDs != "":
		w.add("meta mark set %s . %s map @%s meta mark set meta mark", frontend, drawn, a.IDs)
	default:
		number = drawn
	}
	if a.Clients != "" && !a.Recall {
		w.add("delete @%s { %s : meta mark }", a.Clients, client)
	}
	if a.Clients != "" {
		w.add("update @%s { %s timeout %s : meta mark }", a.Clients, client, nftTime(a.Timeout))
	}
	w.action(tables.SetConnMark{Value: a.ConnMark, Mask: a.ConnMark})
	w.add("dnat %s to %s . %s map @%s", nftIP(a.Family), frontend, number, a.Endpoints)
}

// nftTime writes whole seconds as nft does: 1d1h30m5s.
func nftTime(d time.Duration) (text string) {
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := d / unit.of; n > 0 {
			text += fmt.Sprintf("%d%s", n, unit.name)
			d -= n * unit.of
		}
	}
	return text
}

func nftAssigned(itself string, value, mask uint32) string {
	switch {
	case mask == ^uint32(0):
		return fmt.Sprintf("0x%08x", value)
	case value == mask:
		return fmt.Sprintf("%s | 0x%08x", itself, value)
	case value == 0:
		return fmt.Sprintf("%s & 0x%08x", itself, ^mask)
	}
	return fmt.Sprintf("%s & 0x%08x | 0x%08x", itself, ^mask|value, value)
}

// nftComment writes a rule's comment as the kernel has it.
func nftComment(r *Rule) string {
	text := r.Comment
	if r.Hash != "" {
		text = string(tables.AppendKernelComment(nil, r.Hash, r.Comment))
	}
	if text == "" {
		return ""
	}
	return ` comment "` + text + `"`
}

// nftElement writes an element as nft does.
func nftElement(k model.GroupKind, e Element) string {
	if k.Grants() {
		g := e.Grant()
		text := fmt.Sprintf("0x%08x . 0x%08x", g.List, g.Peers)
		if k == model.Grants {
			text += fmt.Sprintf(" . %s . %d", nftProtocol(g.Protocol), g.Port)
		}
		return text
	}
	if e.Parts != nil {
		return e.String()
	}
	text := nftPrefix(e.Prefix)
	if e.Last.IsValid() {
		text += "-" + e.Last.String()
	}
	switch k {
	case model.AddressPorts:
		text = fmt.Sprintf("%s . %s . %d", text, nftProtocol(e.Protocol), e.Port)
	case model.Loops:
		text += " . " + text
	case model.Senders:
		text = e.MAC.String() + " . " + text
	}
	if e.Verdict != nil {
		text += " : " + e.Verdict.String()
	}
	return text
}
