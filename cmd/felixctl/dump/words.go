package dump

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// errForeign marks a rule with a part that felixlike does not write.
var errForeign = errors.New("not of a form that felixlike writes")

func either[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

func number32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	return uint32(n), err
}

func number8(s string) (uint8, error) {
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err
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

func unquoted(word string) string {
	if len(word) >= 2 && word[0] == '"' && word[len(word)-1] == '"' {
		return word[1 : len(word)-1]
	}
	return word
}

func nftFamily(word string) model.Family {
	if word == "ip6" || word == "ipv6" {
		return model.IPv6
	}
	return model.IPv4
}

func foreignUnless(ok bool) error {
	if ok {
		return nil
	}
	return errForeign
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

func port(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
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

// parseStates reads states joined by commas, in letters of either case.
func parseStates(text string) (tables.ConnState, error) {
	var all tables.ConnState
	for name := range strings.SplitSeq(strings.ToLower(text), ",") {
		i := slices.IndexFunc([]tables.ConnState{tables.StateNew, tables.StateEstablished, tables.StateRelated, tables.StateInvalid, tables.StateUntracked},
			func(s tables.ConnState) bool { return s.String() == name })
		if i < 0 {
			return 0, errForeign
		}
		all |= 1 << i
	}
	return all, nil
}

// parseVerdict reads the verdict at the start of the words, and the number of its words.
func parseVerdict(words []string) (tables.Action, int) {
	if len(words) == 0 {
		return nil, 0
	}
	switch words[0] {
	case "accept":
		return tables.Accept{}, 1
	case "drop":
		return tables.Drop{}, 1
	case "return":
		return tables.Return{}, 1
	}
	if len(words) < 2 {
		return nil, 0
	}
	switch words[0] {
	case "jump":
		return tables.Jump{Chain: words[1]}, 2
	case "goto":
		return tables.Goto{Chain: words[1]}, 2
	}
	return nil, 0
}
