package denied

import (
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// Report is the dataplane's report of one packet.
type Report struct {
	At        time.Time
	Direction model.Direction
	// NoService reports that no policy denies the packet: its destination is an address for Services that no
	// Service has.
	NoService bool
	// Host reports that a policy of the node itself denies the packet, PreDNAT that it does so before DNAT.
	Host, PreDNAT bool
	// Service is the chain of the table of Services that drops or refuses the packet (rules.ServiceDrops), and ServicePort the port that it
	// goes to.
	Service     string
	ServicePort string
	// Log is the key of the rule that decided the packet, in a report of a rule with Log.
	Log rules.LogKey
	// Packet begins with the IP header.
	Packet []byte
	// Lost counts the reports before this one that did not come.
	Lost uint64
}
