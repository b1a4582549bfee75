package dump

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/tables"
)

// parseNFTRule reads one line of a chain.
func parseNFTRule(line string) Rule {
	p := nftRule{nftTokens: nftTokens{typed(nftWords(line))}}
	p.takeHandle()
	p.takeComment()
	p.takeCounter()
	text := strings.Join(p.words, " ")
	if err := p.all(); err != nil {
		p.rule.Matches, p.rule.Action, p.rule.Foreign = nil, nil, cmp.Or(text, "counter")
	}
	return p.rule
}

// Listed returns the rule as it comes back from a listing: Foreign if nft lists it in words that are not parsed.
func (r *Rule) Listed() Rule { return parseNFTRule(r.NFT(true)) }

// typed gives the constants within a key their type, which nft does not know: it lists "0x0 [invalid type]" for an unspecified address,
// and the bytes of a number in the order of the network.
func typed(words []string) []string {
	at := slices.Index(words, "[invalid")
	if at < 0 {
		return words
	}
	six := slices.Contains(words, "ip6") || slices.Contains(words, "ipv6")
	var out []string
	for i := 0; i < len(words); i++ {
		n, err := number32(words[i])
		if err != nil || i+2 >= len(words) || words[i+1] != "[invalid" || words[i+2] != "type]" {
			out = append(out, words[i])
			continue
		}
		if i += 2; n == 0 {
			out = append(out, nftUnspecified(six))
		} else {
			out = append(out, fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, n))))
		}
	}
	return out
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
	case "ether":
		return p.sender()
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
	case p.accept("ip6", "hoplimit"):
		m := tables.MatchHopLimit{Negated: p.not()}
		hops, err := p.number()
		if err != nil || hops > math.MaxUint8 {
			return errForeign
		}
		m.Hops = uint8(hops)
		return p.add(m)
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

// sender reads "ether saddr . ip saddr @set".
func (p *nftRule) sender() error {
	for _, ip := range []string{"ip", "ip6"} {
		if p.accept("ether", "saddr", ".", ip, "saddr") {
			set, ok := p.set()
			if !ok {
				return errForeign
			}
			return p.add(tables.MatchSender{Family: nftFamily(ip), Set: set})
		}
	}
	return errForeign
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
// "& (fin | syn | rst | ack) != syn"; and "& rst == rst", or "rst / rst".
func (p *nftRule) tcpFlags() error {
	if p.accept("&", "rst", "==", "rst") || p.accept("rst", "/", "rst") {
		return cmp.Or(p.protocol("tcp", false), p.add(tables.MatchReset{}))
	}
	const mask = "fin,syn,rst,ack"
	var m tables.MatchSYN
	if and(p) {
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
