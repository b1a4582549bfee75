package carry

import (
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/rules"
)

// endings are the TCP connections that ended at one enforcement point, by their
// original direction.
type endings map[conntrack.Tuple]bool

// ended reports whether a connection is over. (The kernel's last state but one
// is over, its last one has just begun, from both ends.)
func ended(k *conntrack.Connection) bool {
	return k.Original.Protocol == unix.IPPROTO_TCP && (k.State == conntrack.StateTimeWait || k.State == conntrack.StateClosed)
}

// outlived reports whether an entry of the other enforcement point is for a
// connection that has ended. At a change of the backend, the two directions of a
// connection move one after the other. So a connection may end at the old
// enforcement point after the new one got a copy of it, or saw a late packet of its
// server. Such an entry would stay for days and be copied at every change. A client
// that reuses its port then begins a new connection over the old entry. That entry
// is one without a packet since the copy, or one with the wrong direction.
func (e endings) outlived(entry *conntrack.Connection) bool {
	if entry.Original.Protocol != unix.IPPROTO_TCP || !entry.State.Lives() {
		return false
	}
	if entry.Translated() { // one that was copied of a connection through a Service
		return entry.Mark&rules.MarkService != 0 && e[entry.Original] && carried(entry)
	}
	return e[entry.Reply] || e[entry.Original] && carried(entry)
}

// carried reports whether an entry was copied a short while ago and has not changed.
func carried(k *conntrack.Connection) bool {
	whole := lifetime(k)
	return k.Liberal && k.Timeout > whole/2 && k.Timeout <= whole
}

// opened reports whether the original direction of a TCP entry is known to be the
// client's. It is not if the entry began with a packet from the middle of the stream
// and saw only one direction.
func opened(k *conntrack.Connection) bool {
	return k.Replied || k.State == conntrack.StateSynSent && !k.Liberal
}

// unanswered reports whether a TCP connection was copied to the kernel without a
// reply and still has none. It is not copied back: a pod that gets no answers would
// have more such entries after every change of the backend.
func unanswered(k *conntrack.Connection) bool {
	return k.Original.Protocol == unix.IPPROTO_TCP && !k.Replied && k.Liberal
}
