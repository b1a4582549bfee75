package dump

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Set is a set of nftables, a verdict map, or an ipset.
type Set struct {
	Name string `json:"name"`
	// Type is the type in the tool's words: "ipv4_addr . inet_proto . inet_service",
	// "hash:ip,port", with "interval" and other flags behind it.
	Type string `json:"type"`
	// Kind is zero if the set is of a form that is not ours; all that it has is then
	// in Foreign, but for the sets of Services (OfParts). Verdict maps are of kind Addresses.
	Kind   model.GroupKind `json:"-"`
	Family model.Family    `json:"-"`
	// Verdicts makes it a verdict map: each element leads somewhere. In a map with Numbers, each element has a number.
	Verdicts bool      `json:"verdicts,omitempty"`
	Numbers  bool      `json:"numbers,omitempty"`
	Elements []Element `json:"elements,omitempty"`
	// Foreign are the elements that are not of the kind (with a timeout, a range,
	// ...), as text.
	Foreign []string `json:"foreign,omitempty"`
	Line    int      `json:"line,omitempty"`
}

// OfParts reports whether elements have Parts.
func (s *Set) OfParts() bool {
	for _, address := range []string{"ipv4_addr", "ipv6_addr"} {
		frontend := address + " . inet_proto . inet_service . "
		switch s.Type {
		case frontend + "mark : " + address + " . inet_service", frontend + address + " flags interval":
			return true
		}
	}
	return s.Type == "mark : verdict"
}

// Learned reports whether packets write the elements.
func (s *Set) Learned() bool {
	_, flags, _ := strings.Cut(s.Type, " flags ")
	return strings.Contains(flags, "dynamic")
}

// Element is one element of a set.
type Element struct {
	model.Member
	// Verdict is that of an entry of a verdict map, Accept, Drop, Jump or Goto, or the Number in a map of numbers, else
	// nil.
	Verdict tables.Action
	// Granted reports that the member is a grant.
	Granted bool
	// Parts is not nil in the sets of Services whose keys are no members.
	*Parts
}

// Parts are key and value of an element in nft's words.
type Parts struct{ Text, Value string }

// Compare orders elements by member.
func (e Element) Compare(o Element) int {
	if e.Parts != nil && o.Parts != nil {
		return cmp.Compare(e.Text, o.Text)
	}
	return e.Member.Compare(o.Member)
}

// String returns the member, and its verdict behind a colon.
func (e Element) String() string {
	switch {
	case e.Parts != nil && e.Value != "":
		return e.Key() + " : " + e.Value
	case e.Verdict != nil:
		return fmt.Sprintf("%s : %s", e.Key(), e.Verdict)
	}
	return e.Key()
}

// Key describes the member.
func (e Element) Key() string {
	if e.Parts != nil {
		return e.Text
	}
	if e.Granted {
		return e.Grant().String()
	}
	return e.Member.String()
}

func setNamed(sets []*Set, name string) *Set {
	for _, s := range sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}
