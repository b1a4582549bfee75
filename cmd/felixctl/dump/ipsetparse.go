package dump

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/model"
)

// ParseIPSets parses the output of `ipset save`. Members of unknown forms become
// Foreign, and so do all members of a set of another type. Any line but a set or a
// member is an error.
func ParseIPSets(r io.Reader) ([]*Set, error) {
	p := newIPSetListing()
	err := files.Lines(r, p.line)
	return p.sets, err
}

// ipsetListing is the state of the parser.
type ipsetListing struct {
	sets   []*Set
	byName map[string]*Set
}

func newIPSetListing() ipsetListing { return ipsetListing{byName: map[string]*Set{}} }

func (p *ipsetListing) line(number int, line string) error {
	words := nftWords(strings.TrimSpace(line))
	switch {
	case len(words) == 0, words[0][0] == '#':
		return nil
	case words[0] == "create" && len(words) >= 3:
		if p.byName[words[1]] != nil {
			return fmt.Errorf("line %d: set %s comes twice", number, files.Excerpt(words[1]))
		}
		s := newIPSet(words[1], words[2], words[3:])
		s.Line = number
		p.byName[s.Name] = s
		p.sets = append(p.sets, s)
		return nil
	case words[0] == "add" && len(words) >= 3:
		s := p.byName[words[1]]
		if s == nil {
			return fmt.Errorf("line %d: a member of set %s, which is not there", number, files.Excerpt(words[1]))
		}
		s.addMember(words[2:])
		return nil
	}
	return fmt.Errorf("line %d: unknown line %q", number, files.Excerpt(line))
}

// newIPSet takes a set's type and its options, without those that the kernel chooses.
// A set of another type keeps all its options in the type.
func newIPSet(name, kind string, options []string) *Set {
	s := &Set{Name: name, Type: kind}
	var family, others []string
	for i := 0; i < len(options); i++ {
		pair := options[i:min(i+2, len(options))]
		switch options[i] {
		case "family":
			family = pair
			i++
		case "hashsize", "maxelem", "bucketsize", "initval":
			i++
		default:
			others = append(others, options[i])
		}
	}
	switch kind {
	case "hash:ip":
		s.Kind = model.Addresses
	case "hash:net":
		s.Kind = model.Networks
	case "hash:ip,port":
		s.Kind = model.AddressPorts
	}
	switch {
	case slices.Equal(family, []string{"family", "inet"}):
		s.Family = model.IPv4
	case slices.Equal(family, []string{"family", "inet6"}):
		s.Family = model.IPv6
	}
	if s.Kind == 0 || s.Family == 0 || len(others) > 0 {
		s.Kind, s.Family = 0, 0
		s.Type = strings.Join(append(append([]string{kind}, family...), others...), " ")
	}
	return s
}

// addMember takes a member and its options. Our members have no option but nomatch.
func (s *Set) addMember(words []string) {
	var e Element
	e.Except = len(words) == 2 && words[1] == "nomatch" && s.Kind == model.Networks
	ok := (len(words) == 1 || e.Except) && s.Kind != 0
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
