package property

import (
	"net/netip"
	"time"
)

// site is a node of the random clusters on which a backend decides.
type site interface {
	// plane decides there.
	plane() *dataplane
	// switchesOwn reports whether traffic between a pod and its own node goes past.
	switchesOwn() bool
	// wipe removes policy, behind the backend's back.
	wipe() error
	// openWithoutPolicy reports whether packets pass then.
	openWithoutPolicy() bool
	// round sends the probes in, and notes which came out, until all of them have
	// had the time to. It is an error if one comes out where it should not.
	round(probes []probe, newID func() uint16, through map[uint16]bool) error
}

// side is the place of an address as one node sees it.
type side uint8

const (
	// localPod is a pod of the node, ownNode the node itself.
	localPod side = iota
	ownNode
	// peerNode is a peer or a pod there.
	peerNode
	outside
)

// end is one end of a packet's way past a site. Outside there is no node.
type end struct {
	side    side
	address netip.Addr
	node    string
}

func endAt(site string, a netip.Addr, p place) end {
	e := end{side: ownNode, address: a, node: p.node}
	switch {
	case p.node == "":
		e.side = outside
	case p.node != site:
		e.side = peerNode
	case p.pod:
		e.side = localPod
	}
	return e
}

// probe is one packet on its way past a site. With want, it is expected to come
// out.
type probe struct {
	id      uint16
	in, out end
	payload []byte
	want    bool
}

// A packet that should have come out and did not is sent again this many times:
// a queue that overflows on a busy machine must not look like policy, and policy
// drops it every time.
const retransmissions = 3

const (
	// again is the time after which a sentinel counts as lost and is sent again,
	// giveUp the time after which no more packets are expected.
	again  = 200 * time.Millisecond
	giveUp = time.Minute
)

// forward sends the probes in and returns the ids of those that came out.
func forward(s site, probes []probe, newID func() uint16) (map[uint16]bool, error) {
	through := map[uint16]bool{}
	for range 1 + retransmissions {
		if err := s.round(probes, newID, through); err != nil {
			return nil, err
		}
		var missing []probe
		for _, p := range probes {
			if p.want && !through[p.id] {
				missing = append(missing, p)
			}
		}
		if probes = missing; len(probes) == 0 {
			break
		}
	}
	return through, nil
}
