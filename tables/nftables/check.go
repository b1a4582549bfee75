package nftables

import (
	"errors"
	"fmt"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// checkName accepts the identifiers of nft's grammar, so that people can name our objects on its command
// line.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name is too long: %d characters of at most %d", len(name), maxName)
	}
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		other := r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' || r == '/'
		if !letter && (!other || i == 0) {
			return fmt.Errorf("the name has a character %q that nft does not take there", r)
		}
	}
	return nil
}

func checkHook(h *tables.Hook) error {
	if h == nil {
		return nil
	}
	if h.Type != tables.HookFilter && h.Type != tables.HookNAT {
		return fmt.Errorf("unknown chain type %s", h.Type)
	}
	switch h.Point {
	case tables.HookForward, tables.HookPostrouting, tables.HookPrerouting, tables.HookInput, tables.HookOutput:
	default:
		return fmt.Errorf("unknown hook %s", h.Point)
	}
	if h.Type == tables.HookNAT && h.Point != tables.HookPostrouting {
		return fmt.Errorf("a chain of the nat type cannot be at hook %s", h.Point)
	}
	return nil
}

// checkShape accepts the shapes that the kernel has types for.
func checkShape(sh kernel.Shape) error {
	if err := checkFamily(sh.Family); err != nil {
		return err
	}
	switch {
	case sh.Numbers && sh.Kind != model.Addresses && sh.Kind != model.Networks:
		return fmt.Errorf("a map of numbers cannot have %s as keys", sh.Kind)
	case sh.Kind.Grants() && sh.Family != model.IPv6:
		return errors.New("grants have 16 bytes, as IPv6 addresses")
	}
	switch sh.Kind {
	case model.Addresses, model.Networks, model.AddressPorts, model.Loops, model.Senders, model.Grants, model.AnyPortGrants:
		return nil
	}
	return fmt.Errorf("unknown kind %s", sh.Kind)
}

func checkFamily(f model.Family) error {
	if f != model.IPv4 && f != model.IPv6 {
		return fmt.Errorf("unknown family %s", f)
	}
	return nil
}

// checkMember checks a member of a set against the set's shape, and that it overlaps no other: an interval
// set would silently take one half of a prefix if its other boundary exists already.
func (s *set) checkMember(m model.Member) error {
	switch {
	case !m.Prefix.IsValid() || m.Prefix.Addr().Is4In6() || m.Prefix.Addr().Zone() != "":
		return errors.New("not a usable address")
	case m.Prefix != m.Prefix.Masked():
		return errors.New("host bits are set")
	case m.Family() != s.shape.Family:
		return fmt.Errorf("the member is of family %s, the set of %s", m.Family(), s.shape.Family)
	case m.Except:
		return errors.New("an interval set takes no exceptions")
	case m.Last.IsValid() && (s.shape.Kind != model.Networks || !m.Prefix.IsSingleIP() || !m.Range().IsValid()):
		return errors.New("not a range of addresses")
	case s.shape.Kind != model.Networks && s.shape.Kind != model.Senders && !m.Prefix.IsSingleIP():
		return fmt.Errorf("a set of %s takes single addresses only", s.shape.Kind)
	case (m.MAC != model.MAC{}) != (s.shape.Kind == model.Senders):
		return errors.New("a MAC address belongs to the members of a set of senders, and to no others")
	case s.shape.Kind == model.AddressPorts && m.Protocol == model.AnyProtocol:
		return errors.New("a protocol is needed")
	case s.shape.Kind.Grants() && m.Grant().Member() != m:
		return errors.New("not a grant")
	case s.shape.Kind == model.Grants && (m.Protocol == model.AnyProtocol || m.Port == 0):
		return errors.New("a protocol and a port are needed")
	case s.shape.Kind != model.AddressPorts && s.shape.Kind != model.Grants && (m.Protocol != model.AnyProtocol || m.Port != 0):
		return fmt.Errorf("a set of %s takes no protocol or port", s.shape.Kind)
	}
	if s.shape.Kind == model.Networks && s.ranges == 0 {
		if o, ok := s.overlapping(m.Prefix); ok {
			return fmt.Errorf("the prefix overlaps member %s", o)
		}
	}
	return nil
}

// checkRule checks the rule alone.
func checkRule(r tables.Rule) error {
	if err := r.Check(); err != nil {
		return err
	}
	if target := tables.Target(r.Action); target != "" {
		return checkName(target)
	}
	return nil
}
