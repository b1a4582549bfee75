// Package probe is the lab's traffic: echo servers and probes on real sockets
// inside network namespaces.
//
// A Station is one network namespace seen from the wire; it serves TCP and UDP
// echo on chosen addresses and ports, SCTP too where the kernel has SCTP sockets (elsewhere
// it answers SCTP's INIT from raw ones), and probes start there. A Prober tries
// many Flows at once and reports those that got through. It does not know clusters or
// policy. It is tested on two namespaces joined by a veth pair, with and without a
// filter between them.
package probe

import (
	"net/netip"
	"time"

	"github.com/felixlike/felixlike/model"
)

// Flow is one probe: a new connection, or a datagram and its answer.
type Flow struct {
	From     *Station
	Source   netip.Addr
	Target   netip.AddrPort
	Protocol model.Protocol
}

// Outcome is the result of a flow.
type Outcome struct {
	Through bool
	// Reason is "answered", "no answer", "refused" (no connection), "reset" (the end of a connection), or a local error,
	// which is in Err too: such a flow was not tried.
	Reason string
	Err    error
	// RTT is the time from the first packet of the successful attempt to the
	// end of its echo.
	RTT time.Duration
	// Attempts is the number of tries.
	Attempts int
}

// Reasons of an Outcome.
const (
	Answered = "answered"
	NoAnswer = "no answer"
	Refused  = "refused"
	Reset    = "reset"
)
