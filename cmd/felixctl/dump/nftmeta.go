package dump

import (
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// meta parses a match or an action that begins with "meta".
func (p *nftRule) meta() error {
	switch {
	case p.accept("meta", "nfproto", "ipv4"):
		return p.bind(model.IPv4)
	case p.accept("meta", "nfproto", "ipv6"):
		return p.bind(model.IPv6)
	case p.accept("meta", "l4proto"):
		negated := p.not()
		word := p.next(1)
		if word == nil {
			return errForeign
		}
		return p.protocol(word[0], negated)
	case p.accept("meta", "protocol"):
		word := p.next(1)
		if word == nil {
			return errForeign
		}
		t, known := nftEtherTypes[word[0]]
		if !known {
			return errForeign
		}
		return p.add(tables.MatchEtherType{Type: t})
	case p.accept("meta", "mark", "set", "ip"):
		return p.grant(model.IPv4)
	case p.accept("meta", "mark", "set", "ip6"):
		return p.grant(model.IPv6)
	case p.accept("meta", "mark", "set"):
		value, mask, err := p.assignment("meta", "mark")
		p.rule.Action = tables.SetMark{Value: value, Mask: mask}
		if p.accept("return") {
			p.rule.Action = tables.SetMarkAndReturn{Value: value, Mask: mask}
		}
		return err
	case p.accept("meta", "mark"):
		value, mask, negated, err := p.masked()
		if err != nil {
			return err
		}
		return p.add(tables.MatchMark{Value: value, Mask: mask, Negated: negated})
	}
	return errForeign
}

// grant reads the rest of "meta mark set ip daddr map @lists meta mark set ip saddr map @peers meta mark set meta mark
// meta mark . meta mark . meta l4proto . th dport @grants".
func (p *nftRule) grant(f model.Family) error {
	m := tables.MatchGrant{Family: f, Pod: tables.Source}
	if !p.accept(nftSide(m.Pod), "map") {
		if m.Pod = tables.Destination; !p.accept(nftSide(m.Pod), "map") {
			return errForeign
		}
	}
	var found [3]bool
	m.Lists, found[0] = p.set()
	if found[1] = p.accept("meta", "mark", "set", "0x00000000"); !found[1] && p.accept("meta", "mark", "set", nftIP(f), nftSide(m.Peer()), "map") {
		m.Peers, found[1] = p.set()
	}
	if !p.accept("meta", "mark", "set", "meta", "mark", "meta", "mark", ".", "meta", "mark") {
		return errForeign
	}
	m.AnyPort = !p.accept(".", "meta", "l4proto", ".", "th", "dport")
	m.Grants, found[2] = p.set()
	if found != [3]bool{true, true, true} {
		return errForeign
	}
	return p.add(m)
}

// masked reads "& 0x1 == 0x1", "!= 7", "7", or "0x80000000/1": nft lists a comparison of the first bits so.
func (p *nftRule) masked() (value, mask uint32, negated bool, err error) {
	mask = ^uint32(0)
	if and(p) {
		if mask, err = p.number(); err != nil {
			return 0, 0, false, err
		}
		if len(p.words) == 0 || p.words[0] != "==" && p.words[0] != "!=" {
			return 0, 0, false, errForeign
		}
	}
	negated = p.not()
	if len(p.words) > 0 {
		if number, bits, prefix := strings.Cut(p.words[0], "/"); prefix {
			n, errBits := strconv.ParseUint(bits, 10, 6)
			value, err = number32(number)
			p.next(1)
			return value, ^(^uint32(0) >> n), negated, foreignUnless(err == nil && errBits == nil && n <= 32)
		}
	}
	value, err = p.number()
	return value, mask, negated, err
}

func and(p *nftRule) bool { return p.accept("&") || p.accept("and") }

func (p *nftRule) number() (uint32, error) {
	word := p.next(1)
	if word == nil {
		return 0, errForeign
	}
	n, err := number32(word[0])
	return n, foreignUnless(err == nil)
}

// assignment reads the new value of a mark, as value and mask: a number, or the mark
// with some bits cleared and set.
func (p *nftRule) assignment(itself ...string) (value, mask uint32, err error) {
	if !p.accept(itself...) {
		value, err = p.number()
		return value, ^uint32(0), err
	}
	keep := ^uint32(0)
	some := false
	if and(p) {
		some = true
		if keep, err = p.number(); err != nil {
			return 0, 0, err
		}
	}
	if p.accept("|") || p.accept("or") {
		some = true
		if value, err = p.number(); err != nil {
			return 0, 0, err
		}
	}
	// Bits that are put in are changed whether or not they were taken out.
	return value, ^keep | value, foreignUnless(some)
}

func (p *nftRule) networkInterface() error {
	m := tables.MatchInterface{Side: tables.Source}
	if p.next(1)[0] == "oifname" {
		m.Side = tables.Destination
	}
	m.Negated = p.not()
	word := p.next(1)
	if word == nil || len(word[0]) < 3 || word[0][0] != '"' {
		return errForeign
	}
	// A backslash stands before a star that is part of the name.
	if m.Name = unquoted(word[0]); strings.Contains(m.Name, `\`) || strings.Contains(strings.TrimSuffix(m.Name, "*"), "*") {
		return errForeign
	}
	return p.add(m)
}

// conn parses a match or an action that begins with "ct".
func (p *nftRule) conn() error {
	switch {
	case p.accept("ct", "state"):
		return p.states()
	case p.accept("ct", "direction", "original"):
		return p.add(tables.MatchConnOriginal{})
	case p.accept("ct", "status", "snat,dnat"):
		return p.add(tables.MatchConnTranslated{})
	case p.accept("ct", "status", "dnat"):
		return p.add(tables.MatchConnDNAT{})
	case p.accept("ct", "mark", "set"):
		value, mask, err := p.assignment("ct", "mark")
		p.rule.Action = tables.SetConnMark{Value: value, Mask: mask}
		return err
	case p.accept("ct", "mark"):
		value, mask, negated, err := p.masked()
		if err != nil || negated {
			return errForeign
		}
		return p.add(tables.MatchConnMark{Value: value, Mask: mask})
	}
	for _, ip := range []string{"ip", "ip6"} {
		if p.accept("ct", "original", ip, "saddr") {
			prefix, err := p.prefix(nftFamily(ip))
			if err != nil {
				return err
			}
			return p.add(tables.MatchConnSource{Prefix: prefix})
		}
	}
	return errForeign
}

func (p *nftRule) states() error {
	word := p.next(1)
	if word == nil {
		return errForeign
	}
	states, err := parseStates(word[0])
	if err != nil {
		return err
	}
	return p.add(tables.MatchConnState{States: states})
}

// local reads "fib saddr type local".
func (p *nftRule) local() error {
	m := tables.MatchLocal{Side: tables.Source}
	switch {
	case p.accept("fib", "saddr", "type"):
	case p.accept("fib", "daddr", "type"):
		m.Side = tables.Destination
	default:
		return errForeign
	}
	m.Negated = p.not()
	if !p.accept("local") {
		return errForeign
	}
	return p.add(m)
}

// action reads the action.
func (p *nftRule) action() error {
	switch p.words[0] {
	case "masquerade":
		p.next(1)
		p.rule.Action = tables.Masquerade{}
		return nil
	case "notrack":
		p.next(1)
		p.rule.Action = tables.NoTrack{}
		return nil
	case "snat":
		p.next(1)
		return p.sourceNAT()
	case "limit":
		return p.limited()
	}
	verdict, n := parseVerdict(p.words)
	p.next(n)
	p.rule.Action = verdict
	return foreignUnless(n > 0)
}

// limited reads "limit rate 100/second burst 100 packets", and then the rest of a report,
// log prefix "x" group 1 snaplen 128, or of an answer.
func (p *nftRule) limited() error {
	if !p.accept("limit", "rate") || len(p.words) == 0 {
		return errForeign
	}
	rate, perSecond := strings.CutSuffix(p.next(1)[0], "/second")
	burst := rate
	if p.accept("burst") && len(p.words) > 0 {
		burst = p.next(1)[0]
		p.accept("packets")
	}
	limit, err := number32(rate)
	if err != nil || !perSecond || burst != rate {
		return errForeign
	}
	if p.accept("reject") {
		return p.reject(limit)
	}
	if !p.accept("log", "prefix") || len(p.words) == 0 {
		return errForeign
	}
	a := tables.Report{Prefix: unquoted(p.next(1)[0]), PerSecond: limit}
	if !p.accept("group") {
		return errForeign
	}
	group, err := p.number()
	if err != nil || group > math.MaxUint16 || !p.accept("snaplen") {
		return errForeign
	}
	a.Group = uint16(group)
	a.Length, err = p.number()
	p.rule.Action = a
	return err
}

// reject reads "with tcp reset", "with icmpx admin-prohibited", or nothing.
func (p *nftRule) reject(perSecond uint32) error {
	a := tables.Reject{PerSecond: perSecond}
	switch {
	case p.accept("with", "tcp", "reset"):
		a.With = tables.TCPReset
	case p.accept("with", "icmpx", "admin-prohibited"):
		a.With = tables.AdminProhibited
	case len(p.words) == 0:
		a.With = tables.PortUnreachable
	default:
		return errForeign
	}
	if p.bound && p.rule.Family() == 0 {
		a.Family = p.family
	}
	p.rule.Action = a
	return nil
}

func (p *nftRule) sourceNAT() error {
	for _, ip := range []string{"ip", "ip6"} {
		f := nftFamily(ip)
		switch {
		case p.accept(ip, "to", ip, "saddr"):
			p.rule.Action = tables.KeepSource{Family: f}
			return nil
		case p.accept(ip, "to"):
			word := p.next(1)
			if word == nil {
				return errForeign
			}
			a, err := netip.ParseAddr(word[0])
			if err != nil || model.FamilyOf(a) != f {
				return errForeign
			}
			p.rule.Action = tables.SourceNAT{To: a}
			return nil
		}
	}
	return errForeign
}
