package tables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// maxInterfaceName is IFNAMSIZ of linux/if.h without the closing NUL.
const maxInterfaceName = 15

// Check reports errors that show in the rule alone. Drivers also check names and their own limits.
func (r Rule) Check() error {
	var c checker
	for _, m := range r.Matches {
		if err := c.match(m); err != nil {
			return err
		}
	}
	switch a := r.Action.(type) {
	case Accept, Drop, Return, Masquerade, NoTrack:
		return nil
	case Jump, Goto:
		if Target(a) == "" {
			return errors.New("the action leads to no chain")
		}
		return nil
	case SetMark:
		return checkMark(a.Value, a.Mask)
	case SetMarkAndReturn:
		return checkMark(a.Value, a.Mask)
	case SetConnMark:
		return checkMark(a.Value, a.Mask)
	case Dispatch:
		return errors.Join(c.bind(a.Family), checkSide(a.Side))
	case DispatchKey:
		return errors.Join(c.bind(a.Family), a.Frontend.check())
	case Translate:
		return errors.Join(c.bind(a.Family), a.check())
	case Report:
		return a.check()
	case Reject:
		return c.reject(a)
	case SourceNAT:
		if !a.To.IsValid() || a.To.Is4In6() || a.To.Zone() != "" {
			return fmt.Errorf("address %s is not usable as a source", a.To)
		}
		return c.bind(model.FamilyOf(a.To))
	case KeepSource:
		return c.bind(a.Family)
	case nil:
		return errors.New("the rule has no action")
	}
	return fmt.Errorf("unknown action %T", r.Action)
}

// Family returns the family that the rule's matches require, or zero if it is for both.
func (r Rule) Family() model.Family {
	for _, m := range r.Matches {
		switch m := m.(type) {
		case MatchProtocol:
			if f := m.family(); f != 0 {
				return f
			}
		case MatchSet:
			return m.Family
		case MatchPortSet:
			return m.Family
		case MatchPrefix:
			return model.FamilyOf(m.Prefix.Addr())
		case MatchConnSource:
			return model.FamilyOf(m.Prefix.Addr())
		case MatchLoop:
			return m.Family
		case MatchSender:
			return m.Family
		case MatchHopLimit:
			return model.IPv6
		case MatchGrant:
			return m.Family
		case MatchKey:
			return m.Family
		}
	}
	switch a := r.Action.(type) {
	case Dispatch:
		return a.Family
	case DispatchKey:
		return a.Family
	case Translate:
		return a.Family
	case KeepSource:
		return a.Family
	case Reject:
		return a.Family
	case SourceNAT:
		return model.FamilyOf(a.To)
	}
	return 0
}

// checker holds the family and the protocol that earlier matches of a rule require.
type checker struct {
	family   model.Family
	protocol model.Protocol
}

func (c *checker) match(m Match) error {
	switch m := m.(type) {
	case MatchProtocol:
		if m.Protocol == model.AnyProtocol {
			return errors.New("a match on any protocol matches nothing")
		}
		if !m.Negated {
			c.protocol = m.Protocol
		}
		if f := m.family(); f != 0 {
			return c.bind(f)
		}
		return nil
	case MatchSYN, MatchReset:
		if c.protocol != model.TCP {
			return fmt.Errorf("a match on %s needs a match on tcp before it", m)
		}
		return nil
	case MatchDestinationPorts:
		return c.ports(m)
	case MatchICMP:
		return c.icmp(m)
	case MatchSet:
		return errors.Join(c.bind(m.Family), checkSide(m.Side))
	case MatchPortSet:
		return c.bind(m.Family)
	case MatchPrefix:
		return errors.Join(c.prefix(m.Prefix), checkSide(m.Side))
	case MatchInterface:
		if strings.TrimSuffix(m.Name, "*") == "" || len(m.Name) > maxInterfaceName {
			return fmt.Errorf("interface name %q must have 1 to %d characters", m.Name, maxInterfaceName)
		}
		return checkSide(m.Side)
	case MatchConnState:
		const all = StateNew | StateEstablished | StateRelated | StateInvalid | StateUntracked
		if m.States == 0 || m.States&^all != 0 {
			return fmt.Errorf("unknown connection states %#x", uint8(m.States))
		}
		return nil
	case MatchConnSource:
		return c.prefix(m.Prefix)
	case MatchLocal:
		return checkSide(m.Side)
	case MatchLoop:
		return c.bind(m.Family)
	case MatchSender:
		return c.bind(m.Family)
	case MatchGrant:
		return errors.Join(c.bind(m.Family), checkSide(m.Pod))
	case MatchKey:
		return errors.Join(c.bind(m.Family), m.Key.check())
	case MatchHopLimit:
		return c.bind(model.IPv6)
	case MatchConnOriginal, MatchConnTranslated, MatchConnDNAT, MatchForwarded, MatchEtherType:
		return nil
	case MatchMark:
		return checkMark(m.Value, m.Mask)
	case MatchConnMark:
		return checkMark(m.Value, m.Mask)
	}
	return fmt.Errorf("unknown match %T", m)
}

func (c *checker) prefix(p netip.Prefix) error {
	if !p.IsValid() || p.Addr().Is4In6() || p != p.Masked() {
		return fmt.Errorf("prefix %s is not usable", p)
	}
	return c.bind(model.FamilyOf(p.Addr()))
}

func (c *checker) ports(m MatchDestinationPorts) error {
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

func (c *checker) icmp(m MatchICMP) error {
	switch {
	case !c.protocol.IsICMP():
		return errors.New("a match on a type of ICMP needs a match on icmp or icmpv6 before it")
	case c.protocol == model.ICMP && m.Type == 255:
		return errors.New("iptables takes type 255 of icmp for any type")
	case m.AnyCode && m.Code != 0:
		return fmt.Errorf("a match on any code has code %d", m.Code)
	}
	return nil
}

// family returns the family to which the match binds a rule, or zero.
func (m MatchProtocol) family() model.Family {
	if m.Negated {
		return 0
	}
	return m.Protocol.ICMPFamily()
}

// bind refuses a rule with matches of different families: it could never match.
func (c *checker) bind(f model.Family) error {
	if f != model.IPv4 && f != model.IPv6 {
		return fmt.Errorf("unknown family %s", f)
	}
	if c.family != 0 && c.family != f {
		return fmt.Errorf("family %s after a match of family %s", f, c.family)
	}
	c.family = f
	return nil
}

func checkSide(s Side) error {
	if s != Source && s != Destination {
		return fmt.Errorf("unknown side %s", s)
	}
	return nil
}

// maxReports is how many reports and answers a second the drivers take; the tools of iptables
// count in parts of a second.
const maxReports = 10000

func (a Report) check() error {
	for _, c := range a.Prefix {
		if c != '-' && (c < 'a' || c > 'z') {
			return fmt.Errorf("prefix %q of a report: only a to z and - are taken", a.Prefix)
		}
	}
	if n := len(a.Prefix); n == 0 || n > maxPrefix {
		return fmt.Errorf("prefix %q of a report must have 1 to %d characters", a.Prefix, maxPrefix)
	}
	if a.Group == 0 {
		return errors.New("a report to group 0 goes to the logger of all packets")
	}
	if a.Length == 0 || a.PerSecond == 0 || a.PerSecond > maxReports {
		return fmt.Errorf("report of %d bytes, %d a second: there have to be some, and at most %d a second", a.Length, a.PerSecond, maxReports)
	}
	return nil
}

func (c *checker) reject(a Reject) error {
	switch a.With {
	case TCPReset:
		if c.protocol != model.TCP {
			return errors.New("a tcp reset needs a match on tcp before it")
		}
	case AdminProhibited, PortUnreachable:
	default:
		return fmt.Errorf("unknown answer %s", a.With)
	}
	if a.PerSecond == 0 || a.PerSecond > maxReports {
		return fmt.Errorf("%d answers a second: there have to be some, and at most %d", a.PerSecond, maxReports)
	}
	if a.Family == 0 {
		return nil
	}
	return c.bind(a.Family)
}

// maxPrefix is the limit of iptables without the closing NUL.
const maxPrefix = 63

func checkMark(value, mask uint32) error {
	if mask == 0 || value&^mask != 0 {
		return fmt.Errorf("mark %#x does not fit mask %#x", value, mask)
	}
	return nil
}
