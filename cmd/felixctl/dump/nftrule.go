package dump

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// nftRule parses a rule of the forms that felixlike writes. One unknown match makes the
// whole rule Foreign: half a rule has no meaning.
type nftRule struct {
	words []string
	rule  Rule
	// family is the one that `meta nfproto` or a look at an IP header binds to.
	family model.Family
	bound  bool
}

// parseNFTRule reads one line of a chain.
func parseNFTRule(line string) Rule {
	p := nftRule{words: nftWords(line)}
	p.takeHandle()
	p.takeComment()
	p.takeCounter()
	text := strings.Join(p.words, " ")
	if err := p.all(); err != nil {
		p.rule.Matches, p.rule.Action, p.rule.Foreign = nil, nil, cmp.Or(text, "counter")
	}
	return p.rule
}

// nftWords splits at blanks outside of quotes. A quoted word keeps its quotes.
func nftWords(line string) []string {
	var out []string
	for i := 0; i < len(line); {
		if line[i] == ' ' || line[i] == '\t' {
			i++
			continue
		}
		start, quoted := i, false
		for ; i < len(line) && (quoted || line[i] != ' ' && line[i] != '\t'); i++ {
			if line[i] == '"' {
				quoted = !quoted
			}
		}
		out = append(out, line[start:i])
	}
	return out
}

// takeHandle drops "# handle 7" at the end.
func (p *nftRule) takeHandle() {
	if n := len(p.words); n >= 3 && p.words[n-3] == "#" && p.words[n-2] == "handle" {
		p.words = p.words[:n-3]
	}
}

// takeComment takes `comment "..."` off the end.
func (p *nftRule) takeComment() {
	n := len(p.words)
	if n < 2 || p.words[n-2] != "comment" {
		return
	}
	p.rule.setComment(unquoted(p.words[n-1]))
	p.words = p.words[:n-2]
}

func unquoted(word string) string {
	if len(word) >= 2 && word[0] == '"' && word[len(word)-1] == '"' {
		return word[1 : len(word)-1]
	}
	return word
}

// setComment splits our comment.
func (r *Rule) setComment(text string) {
	if r.Hash = tables.HashInComment(text); r.Hash != "" {
		text = strings.TrimPrefix(text[len(tables.CommentPrefix)+len(r.Hash):], " ")
	}
	r.Comment = text
}

// takeCounter takes the one counter out, with its figures or, as in a listing
// without state, without them.
func (p *nftRule) takeCounter() {
	i := slices.Index(p.words, "counter")
	if i < 0 {
		return
	}
	rest := p.words[i+1:]
	if len(rest) > 0 && rest[0] == "name" {
		return // one that several rules share
	}
	p.rule.Counted = true
	if len(rest) >= 4 && rest[0] == "packets" && rest[2] == "bytes" {
		packets, err1 := strconv.ParseUint(rest[1], 10, 64)
		bytes, err2 := strconv.ParseUint(rest[3], 10, 64)
		if err1 == nil && err2 == nil {
			p.rule.Packets, p.rule.Bytes = packets, bytes
			rest = rest[4:]
		}
	}
	p.words = append(p.words[:i:i], rest...)
}

// next takes n words, or none.
func (p *nftRule) next(n int) []string {
	if len(p.words) < n {
		return nil
	}
	out := p.words[:n]
	p.words = p.words[n:]
	return out
}

// accept takes the words if they come next.
func (p *nftRule) accept(words ...string) bool {
	if len(p.words) < len(words) || !slices.Equal(p.words[:len(words)], words) {
		return false
	}
	p.words = p.words[len(words):]
	return true
}

// not takes "!=" or "==", if there is one.
func (p *nftRule) not() bool {
	if p.accept("!=") {
		return true
	}
	p.accept("==")
	return false
}

// all reads the matches and the action, with which the rule has to end.
func (p *nftRule) all() error {
	for p.rule.Action == nil {
		if err := p.one(); err != nil {
			return err
		}
	}
	if len(p.words) > 0 {
		return fmt.Errorf("%q behind the action: %w", p.words[0], errForeign)
	}
	// The family that nft prints has to be the one that the matches imply: a rule that
	// only this word binds to a family is not ours.
	if p.bound && p.rule.Family() != p.family {
		return errForeign
	}
	return p.rule.Check()
}

// one reads a match or the action.
func (p *nftRule) one() error {
	if len(p.words) == 0 {
		return errForeign // a rule that only counts
	}
	word := p.words[0]
	switch word {
	case "ip", "ip6":
		return p.address()
	case "tcp", "udp", "sctp", "th":
		return p.port()
	case "icmp", "icmpv6":
		return p.icmp()
	case "meta":
		return p.meta()
	case "iifname", "oifname":
		return p.networkInterface()
	case "iif":
		if p.accept("iif", "!=", "0") {
			return p.add(tables.MatchForwarded{})
		}
		return errForeign
	case "ct":
		return p.conn()
	case "fib":
		return p.local()
	}
	return p.action()
}

func (p *nftRule) add(m tables.Match) error {
	p.rule.Matches = append(p.rule.Matches, m)
	return nil
}

// bind notes that nft binds the rule to the family.
func (p *nftRule) bind(f model.Family) error {
	if p.bound && p.family != f {
		return errForeign
	}
	p.family, p.bound = f, true
	return nil
}

func nftFamily(word string) model.Family {
	if word == "ip6" || word == "ipv6" {
		return model.IPv6
	}
	return model.IPv4
}

// address parses a match that begins with "ip" or "ip6".
func (p *nftRule) address() error {
	f, ip := nftFamily(p.words[0]), p.words[0]
	for _, c := range []struct {
		words []string
		match func(set string) tables.Match
	}{
		{[]string{ip, "daddr", ".", "meta", "l4proto", ".", "th", "dport"}, func(s string) tables.Match { return tables.MatchPortSet{Family: f, Set: s} }},
		{[]string{ip, "saddr", ".", ip, "daddr"}, func(s string) tables.Match { return tables.MatchLoop{Family: f, Set: s} }},
	} {
		if !p.accept(c.words...) {
			continue
		}
		set, ok := p.set()
		if !ok {
			return errForeign
		}
		return p.add(c.match(set))
	}
	var side tables.Side
	switch {
	case p.accept(ip, "saddr"):
		side = tables.Source
	case p.accept(ip, "daddr"):
		side = tables.Destination
	default:
		return errForeign
	}
	if p.accept("vmap") {
		m, ok := p.set()
		p.rule.Action = tables.Dispatch{Family: f, Side: side, Map: m}
		return foreignUnless(ok)
	}
	negated := p.not()
	if set, ok := p.set(); ok {
		if negated {
			return errForeign
		}
		return p.add(tables.MatchSet{Family: f, Side: side, Set: set})
	}
	prefix, err := p.prefix(f)
	if err != nil {
		return err
	}
	return p.add(tables.MatchPrefix{Side: side, Prefix: prefix, Negated: negated})
}

func foreignUnless(ok bool) error {
	if ok {
		return nil
	}
	return errForeign
}

// set takes "@name".
func (p *nftRule) set() (string, bool) {
	if len(p.words) == 0 || len(p.words[0]) < 2 || p.words[0][0] != '@' {
		return "", false
	}
	return p.next(1)[0][1:], true
}

// prefix takes an address or a prefix of the family.
func (p *nftRule) prefix(f model.Family) (netip.Prefix, error) {
	word := p.next(1)
	if word == nil {
		return netip.Prefix{}, errForeign
	}
	prefix, err := parsePrefix(word[0])
	if err != nil || model.FamilyOf(prefix.Addr()) != f {
		return netip.Prefix{}, errForeign
	}
	return prefix, nil
}

// parsePrefix reads an address or a prefix, which has to be masked.
func parsePrefix(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			return netip.Prefix{}, errForeign
		}
		return prefix, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Prefix{}, errForeign
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// port reads "tcp dport 80-90", and "th dport" behind a match on the protocol.
func (p *nftRule) port() error {
	protocol := p.next(1)[0]
	if protocol == "tcp" && p.accept("flags") {
		return p.tcpFlags()
	}
	if !p.accept("dport") {
		return errForeign
	}
	word := p.next(1)
	if word == nil {
		return errForeign
	}
	first, last, ranged := strings.Cut(word[0], "-")
	if !ranged {
		last = first
	}
	var m tables.MatchDestinationPorts
	var errs [2]error
	m.First, errs[0] = port(first)
	m.Last, errs[1] = port(last)
	if errs != [2]error{} {
		return errForeign
	}
	if protocol != "th" {
		if err := p.protocol(protocol, false); err != nil {
			return err
		}
	}
	return p.add(m)
}

// icmp reads "icmp type 8", and "icmp code 0" behind it.
func (p *nftRule) icmp() error {
	word := p.next(1)[0]
	words := icmpWords(word)
	if !p.accept("type") {
		return errForeign
	}
	m := tables.MatchICMP{AnyCode: true}
	var ok bool
	if m.Type, ok = words.types.read(p.next(1)); !ok {
		return errForeign
	}
	if p.accept(word, "code") {
		m.AnyCode = false
		if m.Code, ok = words.codes.read(p.next(1)); !ok {
			return errForeign
		}
	}
	return cmp.Or(p.protocol(word, false), p.add(m))
}

// tcpFlags reads "!= syn / fin,syn,rst,ack", or as older tools print it,
// "& (fin | syn | rst | ack) != syn".
func (p *nftRule) tcpFlags() error {
	const mask = "fin,syn,rst,ack"
	var m tables.MatchSYN
	if p.and() {
		looked := ""
		for len(p.words) > 0 && p.words[0] != "==" && p.words[0] != "!=" {
			looked += p.next(1)[0]
		}
		if strings.ReplaceAll(strings.Trim(looked, "()"), "|", ",") != mask {
			return errForeign
		}
		m.Negated = p.not()
		if !p.accept("syn") {
			return errForeign
		}
	} else if m.Negated = p.not(); !p.accept("syn", "/", mask) {
		return errForeign
	}
	return cmp.Or(p.protocol("tcp", false), p.add(m))
}

func port(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}

// protocol adds a match on the protocol, unless there is the same before: nft
// leaves one out where "tcp dport" says it.
func (p *nftRule) protocol(name string, negated bool) error {
	n, err := parseProtocol(name)
	if err != nil {
		return err
	}
	m := tables.MatchProtocol{Protocol: n, Negated: negated}
	if slices.Contains(p.rule.Matches, tables.Match(m)) {
		return nil
	}
	return p.add(m)
}

// parseProtocol reads a protocol's name, in the tools' or in our words, or number.
func parseProtocol(name string) (model.Protocol, error) {
	for _, known := range []model.Protocol{model.ICMP, model.TCP, model.UDP, model.ICMPv6, model.SCTP} {
		if name == known.String() || known == model.ICMPv6 && (name == "ipv6-icmp" || name == "icmpv6") {
			return known, nil
		}
	}
	n, err := strconv.ParseUint(name, 0, 8)
	if err != nil || n == 0 {
		return 0, errForeign
	}
	return model.Protocol(n), nil
}
