package hostnet

import (
	"testing"

	socket "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// FuzzNotification has both watches parse any message of rtnetlink.
func FuzzNotification(f *testing.F) {
	types := []uint16{
		unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWROUTE, unix.RTM_DELROUTE,
		unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH, unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNETCONF,
	}
	for _, kind := range types {
		for _, size := range []int{0, 1, 8, 12, 16, 28, 40} {
			data := make([]byte, size)
			f.Add(kind, data)
			// An attribute that claims to be longer than the message, one of length 0, and a whole one.
			f.Add(kind, append(data, 0xff, 0xff, 1, 0))
			f.Add(kind, append(data, 0, 0, 2, 0))
			f.Add(kind, append(data, 8, 0, 1, 0, 10, 0, 0, 1))
		}
	}
	d := &drift{link: 1, applied: true, wanted: newObjects(State{Gateway: "flx-gw0", RouteTable: DefaultRouteTable, RulePriority: DefaultRulePriority})}
	w := &addressWatch{up: map[int32]bool{1: true}}
	f.Fuzz(func(_ *testing.T, kind uint16, data []byte) {
		m := socket.Message{Header: socket.Header{Type: socket.HeaderType(kind)}, Data: data}
		_, _ = d.concerned(m), w.concerns(m)
	})
}
