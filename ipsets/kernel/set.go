package kernel

import (
	"fmt"
	"iter"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// set is one desired set: its desired members, and the kernel's state of the elements
// that changed since the last commit. The kernel's other elements are as desired.
type set struct {
	spec    ipsets.Set
	desired bool
	members map[model.Member]struct{}
	// bad are desired members that the set cannot have, with the reason.
	bad    map[model.Member]string
	before map[element]bool
	// unread says that the kernel may hold unknown elements.
	unread bool
	// trusted says that the state before the set became unread came from a successful
	// apply: then all differences are foreign changes.
	trusted bool
	refusal *refusal
}

func newSet(spec ipsets.Set) *set {
	return &set{
		spec: spec, members: map[model.Member]struct{}{}, bad: map[model.Member]string{}, before: map[element]bool{},
	}
}

func (s *set) add(m model.Member) {
	if reason := misfit(s.spec, m); reason != "" {
		s.bad[m] = reason
		return
	}
	s.mark(m)
	s.members[m] = struct{}{}
}

func (s *set) remove(m model.Member) {
	delete(s.bad, m)
	if _, ok := s.members[m]; ok {
		s.mark(m)
		delete(s.members, m)
	}
}

// empty removes all members.
func (s *set) empty() {
	clear(s.bad)
	for m := range s.members {
		s.remove(m)
	}
}

func (s *set) mark(m model.Member) {
	for e := range Elements(m) {
		if _, ok := s.before[e]; !ok {
			s.before[e] = s.isDesired(e)
		}
	}
}

// isDesired reports whether the kernel's set shall have the element.
func (s *set) isDesired(e element) bool {
	if _, ok := s.members[e]; ok {
		return true
	}
	if e.Prefix.Bits() != 1 || e.Except || s.spec.Kind != model.Networks {
		return false
	}
	_, ok := s.members[everyAddress(s.spec.Family)]
	return ok
}

// elements yields the desired elements of the kernel's set, each once.
func (s *set) elements() iter.Seq[element] {
	return func(yield func(element) bool) {
		for m := range s.members {
			for e := range Elements(m) {
				if _, also := s.members[e]; also && e != m {
					continue
				}
				if !yield(e) {
					return
				}
			}
		}
	}
}

// inverts reports whether a prefix becomes an exception or stops being one. The kernel
// has one element for both, so deleting the old member would delete the new one.
func (s *set) inverts() bool {
	for e, there := range s.before {
		other := e
		other.Except = !e.Except
		if there && !s.isDesired(e) && s.isDesired(other) {
			return true
		}
	}
	return false
}

// commit records that the kernel has the desired state.
func (s *set) commit() {
	// Not cleared: a map that was large stays slow.
	s.before = map[element]bool{}
	s.unread, s.trusted = false, true
}

// rebase takes the given elements as the kernel's state. It returns how many elements
// other programs must have added, and how many they must have removed.
func (s *set) rebase(found map[element]struct{}) (foreign, missing int) {
	before := map[element]bool{}
	for e := range found {
		if known, changed := s.before[e]; changed && !known || !changed && !s.isDesired(e) {
			foreign++
		}
		if !s.isDesired(e) {
			before[e] = true
		}
	}
	for e := range s.elements() {
		if _, ok := found[e]; !ok {
			before[e] = false
			if known, changed := s.before[e]; known || !changed {
				missing++
			}
		}
	}
	for e, known := range s.before {
		if _, ok := found[e]; known && !ok && !s.isDesired(e) {
			missing++
		}
	}
	s.before, s.unread = before, false
	return foreign, missing
}

// misfit returns why a set cannot have the member, or "".
func misfit(spec ipsets.Set, m model.Member) string {
	switch {
	case !m.Prefix.IsValid():
		return "is no prefix"
	case m.Prefix != m.Prefix.Masked():
		return "has bits behind its prefix"
	case m.Family() != spec.Family || m.Prefix.Addr().Is4In6():
		return fmt.Sprintf("is not of IPv%s", spec.Family)
	case spec.Kind != model.Networks && !m.Prefix.IsSingleIP():
		return "is not a single address"
	case m.Last.IsValid():
		return "is a range"
	case m.Except && (spec.Kind != model.Networks || m.Prefix.Bits() == 0):
		return "cannot be an exception"
	case (spec.Kind == model.AddressPorts) != (m.Protocol != model.AnyProtocol):
		return fmt.Sprintf("is no member of a set of %s", spec.Kind)
	}
	return ""
}
