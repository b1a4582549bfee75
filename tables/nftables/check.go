package nftables

import (
	"errors"
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// checkName accepts what nft's grammar takes as an identifier, so that people
// can name our objects on its command line.
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
	case tables.HookForward, tables.HookPostrouting, tables.HookPrerouting:
	default:
		return fmt.Errorf("unknown hook %s", h.Point)
	}
	if h.Type == tables.HookNAT && h.Point != tables.HookPostrouting {
		return fmt.Errorf("a chain of the nat type cannot be at hook %s", h.Point)
	}
	return nil
}

// check accepts the shapes that the kernel has types for.
func (sh shape) check() error {
	if err := checkFamily(sh.family); err != nil {
		return err
	}
	switch sh.kind {
	case model.Addresses, model.Networks, model.AddressPorts:
		return nil
	}
	return fmt.Errorf("unknown kind %s", sh.kind)
}

func checkFamily(f model.Family) error {
	if f != model.IPv4 && f != model.IPv6 {
		return fmt.Errorf("unknown family %s", f)
	}
	return nil
}

// checkMember checks a member of a set against the set's shape, and that it
// overlaps no other: an interval set would silently take one half of a prefix
// whose other boundary exists already.
func (s *set) checkMember(m model.Member) error {
	switch {
	case !m.Prefix.IsValid() || m.Prefix.Addr().Is4In6() || m.Prefix.Addr().Zone() != "":
		return errors.New("not a usable address")
	case m.Prefix != m.Prefix.Masked():
		return errors.New("host bits are set")
	case m.Family() != s.shape.family:
		return fmt.Errorf("the member is of family %s, the set of %s", m.Family(), s.shape.family)
	case s.shape.kind != model.Networks && !m.Prefix.IsSingleIP():
		return fmt.Errorf("a set of %s takes single addresses only", s.shape.kind)
	case s.shape.kind == model.AddressPorts && m.Protocol == model.AnyProtocol:
		return errors.New("a protocol is needed")
	case s.shape.kind != model.AddressPorts && (m.Protocol != model.AnyProtocol || m.Port != 0):
		return fmt.Errorf("a set of %s takes no protocol or port", s.shape.kind)
	}
	if s.shape.kind == model.Networks {
		if o, ok := s.overlapping(m.Prefix); ok {
			return fmt.Errorf("the prefix overlaps member %s", o)
		}
	}
	return nil
}

// checkRule checks what can be judged by looking at the rule alone.
func checkRule(r tables.Rule) error {
	var seen ruleContext
	for _, m := range r.Matches {
		if err := seen.checkMatch(m); err != nil {
			return err
		}
	}
	switch a := r.Action.(type) {
	case tables.Accept, tables.Drop, tables.Return, tables.Masquerade:
		return nil
	case tables.Jump:
		return checkName(a.Chain)
	case tables.Goto:
		return checkName(a.Chain)
	case tables.SetMark:
		return checkMark(a.Value, a.Mask)
	case tables.SetConnMark:
		return checkMark(a.Value, a.Mask)
	case tables.Dispatch:
		return errors.Join(seen.checkFamily(a.Family), checkSide(a.Side))
	case nil:
		return errors.New("the rule has no action")
	}
	return fmt.Errorf("unknown action %T", r.Action)
}

// ruleContext is what earlier matches of a rule have fixed.
type ruleContext struct {
	family   model.Family
	protocol model.Protocol
}

func (c *ruleContext) checkMatch(m tables.Match) error {
	switch m := m.(type) {
	case tables.MatchProtocol:
		if m.Protocol == model.AnyProtocol {
			return errors.New("a match on any protocol matches nothing")
		}
		c.protocol = m.Protocol
		return nil
	case tables.MatchDestinationPorts:
		return c.checkPorts(m)
	case tables.MatchSet:
		return errors.Join(c.checkFamily(m.Family), checkSide(m.Side))
	case tables.MatchPortSet:
		return c.checkFamily(m.Family)
	case tables.MatchPrefix:
		if !m.Prefix.IsValid() || m.Prefix.Addr().Is4In6() || m.Prefix != m.Prefix.Masked() {
			return fmt.Errorf("prefix %s is not usable", m.Prefix)
		}
		return errors.Join(c.checkFamily(model.FamilyOf(m.Prefix.Addr())), checkSide(m.Side))
	case tables.MatchInterface:
		if strings.TrimSuffix(m.Name, "*") == "" || len(m.Name) >= interfaceNameSize {
			return fmt.Errorf("interface name %q must have 1 to %d characters", m.Name, interfaceNameSize-1)
		}
		return checkSide(m.Side)
	case tables.MatchConnState:
		const all = tables.StateNew | tables.StateEstablished | tables.StateRelated | tables.StateInvalid
		if m.States == 0 || m.States&^all != 0 {
			return fmt.Errorf("unknown connection states %#x", uint8(m.States))
		}
		return nil
	case tables.MatchMark:
		return checkMark(m.Value, m.Mask)
	case tables.MatchConnMark:
		return checkMark(m.Value, m.Mask)
	}
	return fmt.Errorf("unknown match %T", m)
}

func (c *ruleContext) checkPorts(m tables.MatchDestinationPorts) error {
	switch c.protocol {
	case model.TCP, model.UDP, model.SCTP:
	default:
		return errors.New("a match on ports needs a match on tcp, udp or sctp before it")
	}
	if m.First > m.Last {
		return fmt.Errorf("port range %d-%d is empty", m.First, m.Last)
	}
	return nil
}

// checkFamily refuses a rule whose matches are of different families: it could
// never match.
func (c *ruleContext) checkFamily(f model.Family) error {
	if err := checkFamily(f); err != nil {
		return err
	}
	if c.family != 0 && c.family != f {
		return fmt.Errorf("family %s after a match of family %s", f, c.family)
	}
	c.family = f
	return nil
}

func checkSide(s tables.Side) error {
	if s != tables.Source && s != tables.Destination {
		return fmt.Errorf("unknown side %s", s)
	}
	return nil
}

func checkMark(value, mask uint32) error {
	if mask == 0 || value&^mask != 0 {
		return fmt.Errorf("mark %#x does not fit mask %#x", value, mask)
	}
	return nil
}
