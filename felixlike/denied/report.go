package denied

import (
	"time"

	"github.com/felixlike/felixlike/model"
)

// Report is the dataplane's report of one packet.
type Report struct {
	At        time.Time
	Direction model.Direction
	// NoService reports that no policy denies the packet: its destination is an address for Services that no
	// Service has.
	NoService bool
	// Packet begins with the IP header.
	Packet []byte
	// Lost counts the reports before this one that did not come.
	Lost uint64
}
