package dump

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// nftRule parses a rule of the forms that felixlike writes. One unknown match makes the
// whole rule Foreign: half a rule has no meaning.
type nftRule struct {
	nftTokens
	rule Rule
	// family is the one that `meta nfproto` or a look at an IP header binds to.
	family model.Family
	bound  bool
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
