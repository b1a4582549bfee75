package dump

import (
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// nftSet is a set during parsing.
type nftSet struct {
	Set
	isMap bool
	// odd reports a property that our sets do not have.
	odd bool
	// flags are those behind the type.
	flags string
	// elements is the text within the brackets, as far as it is read.
	elements strings.Builder
	within   bool
}

// element takes elements off a line, up to the closing bracket.
func (s *nftSet) element(line string) {
	quoted, start := false, 0
	for i := range len(line) {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ',', c == '}':
			s.elements.WriteString(line[start:i])
			s.take()
			if start = i + 1; c == '}' {
				s.within = false
				return
			}
		}
	}
	s.elements.WriteString(line[start:] + " ")
}

// take parses the element that is complete.
func (s *nftSet) take() {
	text := strings.TrimSpace(s.elements.String())
	s.elements.Reset()
	if text != "" {
		s.Foreign = append(s.Foreign, text)
	}
}

// finish finds the kind of the set and parses its elements accordingly.
func (s *nftSet) finish() {
	s.classify(s.isMap, s.odd, strings.TrimSpace(s.flags))
	texts := s.Foreign
	s.Foreign = nil
	for _, text := range texts {
		s.addElement(text)
	}
}

// classify sets kind and family by the type.
func (s *Set) classify(isMap, odd bool, flags string) {
	keys := s.Type
	if isMap {
		if keys, s.Verdicts = strings.CutSuffix(s.Type, " : verdict"); !s.Verdicts {
			keys, s.Numbers = strings.CutSuffix(s.Type, " : mark")
		}
		odd = odd || !s.Verdicts && !s.Numbers
	} else {
		s.Verdicts = false
	}
	for _, c := range []struct {
		keys, flags string
		kind        model.GroupKind
		family      model.Family
	}{
		{"ipv4_addr", "", model.Addresses, model.IPv4},
		{"ipv6_addr", "", model.Addresses, model.IPv6},
		{"ipv4_addr", "interval", model.Networks, model.IPv4},
		{"ipv6_addr", "interval", model.Networks, model.IPv6},
		{"ipv4_addr . inet_proto . inet_service", "", model.AddressPorts, model.IPv4},
		{"ipv6_addr . inet_proto . inet_service", "", model.AddressPorts, model.IPv6},
		{"ipv4_addr . ipv4_addr", "", model.Loops, model.IPv4},
		{"ipv6_addr . ipv6_addr", "", model.Loops, model.IPv6},
		{"ether_addr . ipv4_addr", "interval", model.Senders, model.IPv4},
		{"ether_addr . ipv6_addr", "interval", model.Senders, model.IPv6},
		{"mark . mark . inet_proto . inet_service", "", model.Grants, model.IPv6},
		{"mark . mark", "", model.AnyPortGrants, model.IPv6},
	} {
		if !odd && keys == c.keys && flags == c.flags && (!isMap || c.kind == model.Addresses || s.Numbers && c.kind == model.Networks) {
			s.Kind, s.Family = c.kind, c.family
		}
	}
	if flags != "" {
		s.Type = strings.TrimSpace(s.Type + " flags " + flags)
	}
}

// addElement adds an element in nft's words.
func (s *Set) addElement(text string) {
	e, ok := s.parseElement(text)
	if !ok {
		s.Foreign = append(s.Foreign, strings.Clone(text))
		return
	}
	s.Elements = append(s.Elements, e)
}

func (s *Set) parseElement(text string) (e Element, ok bool) {
	words := nftWords(text)
	if s.OfParts() {
		return s.parseParts(words)
	}
	if s.Numbers {
		if len(words) != 3 || words[1] != ":" {
			return e, false
		}
		n, err := number32(words[2])
		if err != nil {
			return e, false
		}
		e.Verdict = tables.Number(n)
		words = words[:1]
	}
	if s.Verdicts {
		if len(words) < 3 || words[1] != ":" {
			return e, false
		}
		verdict, n := parseVerdict(words[2:])
		if n == 0 || n != len(words)-2 {
			return e, false
		}
		e.Verdict = verdict
		words = words[:1]
	}
	switch {
	case s.Kind.Grants():
		return parseGrant(s.Kind, words)
	case s.Kind == model.AddressPorts && len(words) == 5 && words[1] == "." && words[3] == ".":
		ok = e.set(s, words[0], words[2], words[4])
	case s.Kind == model.Senders && len(words) == 3 && words[1] == ".":
		ok = e.MAC.UnmarshalText([]byte(words[0])) == nil && e.set(s, words[2], "", "")
	case s.Kind == model.Loops && len(words) == 3 && words[1] == "." && words[0] == words[2],
		(s.Kind == model.Addresses || s.Kind == model.Networks) && len(words) == 1:
		ok = e.set(s, words[0], "", "")
	}
	return e, ok
}

// parseParts reads "10.96.0.1 . tcp . 80 . 0x00000000 : 10.0.0.1 . 8080", or with a verdict, or no value.
func (s *Set) parseParts(words []string) (e Element, ok bool) {
	at := slices.Index(words, ":")
	if at < 0 {
		at = len(words)
	}
	e.Parts = &Parts{Text: strings.Join(words[:at], " ")}
	value := words[min(at+1, len(words)):]
	if s.Verdicts {
		n := 0
		e.Verdict, n = parseVerdict(value)
		return e, at > 0 && n > 0 && n == len(value)
	}
	e.Value = strings.Join(value, " ")
	return e, at > 0 && (e.Value != "") == strings.Contains(s.Type, " : ")
}

// parseGrant reads "0x1 . 0x2 . tcp . 80", or "0x1 . 0x2" in a set for every port.
func parseGrant(k model.GroupKind, words []string) (e Element, ok bool) {
	if k == model.AnyPortGrants && len(words) != 3 || k == model.Grants && (len(words) != 7 || words[5] != ".") || words[1] != "." {
		return e, false
	}
	var g model.Grant
	var errs [4]error
	g.List, errs[0] = number32(words[0])
	g.Peers, errs[1] = number32(words[2])
	if k == model.Grants {
		var n uint64
		g.Protocol, errs[2] = parseProtocol(words[4])
		n, errs[3] = strconv.ParseUint(words[6], 10, 16)
		g.Port = uint16(n)
	}
	return Element{Member: g.Member(), Granted: true}, errs == [4]error{}
}

// set reads the parts of an element of the set's kind.
func (e *Element) set(s *Set, prefix, protocol, number string) bool {
	var err error
	if first, last, ok := strings.Cut(prefix, "-"); ok && s.Kind == model.Networks {
		r, err := netipx.ParseIPRange(first + "-" + last)
		e.Member = model.Member{}
		if err != nil || !r.IsValid() || model.FamilyOf(r.From()) != s.Family || r.From().Is4In6() || r.From().Zone() != "" {
			return false
		}
		e.Member = model.RangeMember(r)
		return true
	}
	if e.Prefix, err = parsePrefix(prefix); err != nil || model.FamilyOf(e.Prefix.Addr()) != s.Family {
		return false
	}
	if s.Kind != model.Networks && s.Kind != model.Senders && !e.Prefix.IsSingleIP() {
		return false
	}
	if s.Kind != model.AddressPorts {
		return true
	}
	if e.Protocol, err = parseProtocol(protocol); err != nil {
		return false
	}
	n, err := strconv.ParseUint(number, 10, 16)
	e.Port = uint16(n)
	return err == nil
}
