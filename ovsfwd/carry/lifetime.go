package carry

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// alive reports whether more packets of a connection may come.
func alive(k *conntrack.Connection) bool {
	switch k.Original.Protocol {
	case unix.IPPROTO_TCP:
		return k.State >= conntrack.StateSynSent && k.State <= conntrack.StateLastAck
	case unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return true
	}
	return false
}

// settled returns the state in which a connection is carried: a TCP connection
// with an answer as established, also when one end has sent everything, so that
// the other one may take its time.
func settled(k *conntrack.Connection) conntrack.State {
	if k.Original.Protocol == unix.IPPROTO_TCP && k.Replied {
		return conntrack.StateEstablished
	}
	return k.State
}

// lifetime is the timeout of a carried entry: the longer one of the two defaults
// for such a connection, the kernel's and the userspace datapath's. The next packet
// sets the timeout that the administrator configured.
func lifetime(k *conntrack.Connection) time.Duration {
	switch {
	case k.Original.Protocol == unix.IPPROTO_TCP && k.Replied:
		return 24 * time.Hour
	case k.Original.Protocol == unix.IPPROTO_TCP, k.Original.Protocol == unix.IPPROTO_UDP && k.Replied:
		return 2 * time.Minute
	case k.Original.Protocol == unix.IPPROTO_SCTP:
		return 210 * time.Second
	case k.Original.Protocol == unix.IPPROTO_UDP:
		return time.Minute
	}
	return 30 * time.Second
}

// unacknowledged is the kernel's timeout for a TCP connection with unacknowledged
// data (nf_conntrack_tcp_timeout_unacknowledged), less the time that such data may
// take. An entry with a longer remaining time is not stale, or was not idle longer.
const unacknowledged = 4 * time.Minute

// expires reports whether an entry may time out before its connection sends the
// next packet.
func expires(entry, live *conntrack.Connection) bool {
	return entry.Timeout < min(lifetime(live)/8, unacknowledged)
}
