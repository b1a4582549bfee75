package kernel

import (
	"time"

	"github.com/mdlayher/netlink"
)

// sideDump is a dump over a separate connection, so that Read can abandon it.
type sideDump struct {
	raw *netlink.Conn
	// elements are those read so far. Up to wanted elements, the dump has no deadline.
	// Above wanted, it must end before deadline. It may not have more than limit.
	elements      *[]element
	wanted, limit int
	deadline      time.Time
	exceeded      bool
}

// enough reports whether the dump has exceeded its limits. The deadline does not apply to
// a set in sync: a busy machine may read it slowly.
func (s *sideDump) enough() bool {
	n := len(*s.elements)
	s.exceeded = s.exceeded || n > s.limit || n > s.wanted && time.Now().After(s.deadline)
	return s.exceeded
}

const (
	// spareElements bounds the elements that a set may have beyond the wanted ones. The
	// driver stops reading a larger set and rebuilds it.
	spareElements = 100_000
	// readPatience bounds the time to read one set that has more elements than wanted. For
	// each 32 kB of a dump the kernel walks the set from its first element, so the time
	// grows with the square of the elements: 100,000 intervals take 0.1 s, a million take
	// minutes.
	readPatience = 3 * time.Second
)
