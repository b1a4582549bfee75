package policyflows

import (
	"cmp"

	"github.com/felixlike/felixlike/model"
)

// portMask is a set of ports of one protocol that one flow matches: those whose
// bits under the mask are the value's. Mask 0 is the whole protocol.
type portMask struct {
	protocol    model.Protocol
	value, mask uint16
}

// String returns "tcp/80", "tcp/8080-8095", or the protocol alone.
func (m portMask) String() string {
	return model.PortRange{Protocol: m.protocol, First: m.value, Last: m.value | ^m.mask}.String()
}

// portMasks returns the fewest masks that cover a range, in order. A range that
// is none, or of a protocol without ports, has none: it matches nothing.
func portMasks(r model.PortRange) []portMask {
	switch r.Protocol {
	case model.TCP, model.UDP, model.SCTP:
	default:
		return nil
	}
	var masks []portMask
	for first, last := int(r.First), int(r.Last); first <= last; {
		size := 1
		// The largest block that begins at first and ends in the range.
		for first%(size*2) == 0 && first+size*2-1 <= last && size < 1<<16 {
			size *= 2
		}
		masks = append(masks, portMask{r.Protocol, uint16(first), uint16(1<<16 - size)})
		first += size
	}
	return masks
}

func (m portMask) compare(o portMask) int {
	return cmp.Or(cmp.Compare(m.protocol, o.protocol), cmp.Compare(m.value, o.value), cmp.Compare(m.mask, o.mask))
}
