package dump

import (
	"fmt"
	"io"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// ParseIPSets reads what `ipset save` prints. Members of forms that are not ours
// become Foreign, and so do all of a set of another type; a line that is neither a
// set nor a member is an error.
func ParseIPSets(r io.Reader) ([]*Set, error) {
	var all []*Set
	byName := map[string]*Set{}
	err := eachLine(r, func(number int, line string) error {
		words := nftWords(strings.TrimSpace(line))
		switch {
		case len(words) == 0, words[0][0] == '#':
			return nil
		case words[0] == "create" && len(words) >= 3:
			if byName[words[1]] != nil {
				return fmt.Errorf("line %d: set %s comes twice", number, shortened(words[1]))
			}
			s := newIPSet(words[1], words[2], words[3:])
			s.Line = number
			byName[s.Name] = s
			all = append(all, s)
			return nil
		case words[0] == "add" && len(words) >= 3:
			s := byName[words[1]]
			if s == nil {
				return fmt.Errorf("line %d: a member of set %s, which is not there", number, shortened(words[1]))
			}
			s.addMember(words[2:])
			return nil
		}
		return fmt.Errorf("line %d: unknown line %q", number, shortened(line))
	})
	return all, err
}

// newIPSet takes a set's type and its options. What the kernel picks by itself
// does not matter.
func newIPSet(name, kind string, options []string) *Set {
	s := &Set{Name: name, Type: kind}
	known := true
	for i := 0; i < len(options); i++ {
		value := ""
		if i+1 < len(options) {
			value = options[i+1]
		}
		switch options[i] {
		case "family":
			if s.Family = model.IPv4; value == "inet6" {
				s.Family = model.IPv6
			}
			i++
		case "hashsize", "maxelem", "bucketsize", "initval":
			i++
		default:
			known = false
			s.Type += " " + options[i]
		}
	}
	if !known || s.Family == 0 {
		s.Family = 0
		return s
	}
	switch kind {
	case "hash:ip":
		s.Kind = model.Addresses
	case "hash:net":
		s.Kind = model.Networks
	case "hash:ip,port":
		s.Kind = model.AddressPorts
	default:
		s.Family = 0
	}
	return s
}

// addMember takes a member and its options, of which ours have none.
func (s *Set) addMember(words []string) {
	var e Element
	ok := len(words) == 1 && s.Kind != 0
	if ok {
		address, protocol, number := words[0], "", ""
		if s.Kind == model.AddressPorts {
			var rest string
			address, rest, _ = strings.Cut(words[0], ",")
			protocol, number, _ = strings.Cut(rest, ":")
		}
		ok = e.set(s, address, protocol, number)
	}
	if !ok {
		s.Foreign = append(s.Foreign, strings.Join(words, " "))
		return
	}
	s.Elements = append(s.Elements, e)
}
