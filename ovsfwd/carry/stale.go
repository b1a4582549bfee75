package carry

import (
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// endings are the TCP connections that a place has seen the end of, by their
// original direction.
type endings map[conntrack.Tuple]bool

// ended reports whether a connection is over. (The kernel's last state but one
// is over, its last one has just begun, from both ends.)
func ended(k *conntrack.Connection) bool {
	return k.Original.Protocol == unix.IPPROTO_TCP && (k.State == conntrack.StateTimeWait || k.State == conntrack.StateClosed)
}

// outlived reports whether an entry of the other place stands for a connection
// that is over. Packets take the other way one direction after the other, so a
// connection may end where it was, when the other place has been told of it
// already, or has met a late packet of its server. Such an entry would stay for
// days, and be carried to and fro. If whoever opens connections comes back to the
// port meanwhile, they begin a new one over an entry that no packet has touched
// since it was carried, or over one the wrong way round.
func (e endings) outlived(entry *conntrack.Connection) bool {
	if entry.Original.Protocol != unix.IPPROTO_TCP || entry.Translated() || !entry.State.Lives() {
		return false
	}
	return e[entry.Reply] || e[entry.Original] && carried(entry)
}

// carried reports whether an entry is as it was carried, a short while ago.
func carried(k *conntrack.Connection) bool {
	whole := lifetime(k)
	return k.Liberal && k.Timeout > whole/2 && k.Timeout <= whole
}

// opened reports whether an entry tells who opened its TCP connection: one that
// was begun from the middle, and has met but one direction, does not.
func opened(k *conntrack.Connection) bool {
	return k.Replied || k.State == conntrack.StateSynSent && !k.Liberal
}

// unanswered reports whether a TCP connection of the kernel was carried there when
// it had no answer yet, and still has none. It is not carried once more: a pod that
// tries in vain would have more such entries with every change.
func unanswered(k *conntrack.Connection) bool {
	return k.Original.Protocol == unix.IPPROTO_TCP && !k.Replied && k.Liberal
}
