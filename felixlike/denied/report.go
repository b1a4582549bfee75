package denied

import (
	"time"

	"github.com/felixlike/felixlike/model"
)

// Report is what the dataplane tells of one packet.
type Report struct {
	At        time.Time
	Direction model.Direction
	// NoService tells that no policy denies the packet: its destination is an address for
	// Services, and no Service has it.
	NoService bool
	// Packet begins with the IP header.
	Packet []byte
	// Lost counts the reports before this one that did not come.
	Lost uint64
}
