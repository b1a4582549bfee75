package policyflows

import (
	"cmp"
	"fmt"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// portMask is a set of ports of one protocol that one flow matches: those whose
// bits under the mask are the value's. Mask 0 is the whole protocol. For ICMP they are
// messages (model.ICMPMessage): mask 0xff00 is one type, mask 0xffff one type and code.
//
// With a bit it is a set of ports of any protocols (portSets), which flows match by the bit.
type portMask struct {
	protocol    model.Protocol
	value, mask uint16
	bit         uint32
}

// String returns "tcp/80", "tcp/8080-8095", the protocol alone, or "port set 0x1".
func (m portMask) String() string {
	if m.bit != 0 {
		return fmt.Sprintf("port set %#x", m.bit)
	}
	return model.PortRange{Protocol: m.protocol, First: m.value, Last: m.value | ^m.mask}.String()
}

// match matches the ports over a family.
func (m portMask) match(f model.Family) openflow.Match {
	if m.bit != 0 {
		return ip(f).Bits(openflow.Reg7, m.bit, m.bit)
	}
	match := ip(f).Protocol(m.protocol)
	kind, code := model.ICMPTypeAndCode(m.value)
	switch {
	case m.mask == 0:
		return match
	case !m.protocol.IsICMP():
		return match.Port(openflow.DestinationPort(m.protocol), m.value, m.mask)
	case m.mask == 0xffff:
		return match.ICMPMessage(kind, code)
	}
	return match.ICMPMessage(kind)
}

// portMasks returns the fewest masks that cover a range, in order. A range that
// is none, or of a protocol without ports, has none: it matches nothing.
func portMasks(r model.PortRange) []portMask {
	switch r.Protocol {
	case model.TCP, model.UDP, model.SCTP:
	case model.ICMP, model.ICMPv6:
		if _, _, _, ok := r.ICMPRange(); !ok && !r.AllPorts() {
			return nil
		}
	default:
		return nil
	}
	var masks []portMask
	for _, m := range openflow.Masks(r.First, r.Last) {
		masks = append(masks, portMask{protocol: r.Protocol, value: m.Value, mask: m.Mask})
	}
	return masks
}

func (m portMask) compare(o portMask) int {
	return cmp.Or(cmp.Compare(m.bit, o.bit), cmp.Compare(m.protocol, o.protocol), cmp.Compare(m.value, o.value), cmp.Compare(m.mask, o.mask))
}
