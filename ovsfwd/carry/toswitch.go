package carry

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// allowedLabel is the bit of the label by which the pipeline knows a connection
// that policy has let through.
func allowedLabel() conntrack.Label {
	l := pipeline.AllowedLabel()
	return conntrack.Label{High: l.Hi, Low: l.Lo}
}

func isAllowed(k *conntrack.Connection) bool {
	l := allowedLabel()
	return k.Label.High&l.High == l.High && k.Label.Low&l.Low == l.Low
}

// ToSwitch makes the switch know the connections that the kernel has let
// through, and those between the node itself and pods.
func (c *Carrier) ToSwitch(ctx context.Context) (Result, error) {
	var r Result
	s, err := c.look()
	if err == nil {
		err = c.withZone(ctx, func(kernel *conntrack.Kernel, z zone) (err error) {
			r, err = toSwitch(ctx, kernel, z, s)
			return err
		})
	}
	if err != nil {
		return r, fmt.Errorf("carry connections to the switch: %w", err)
	}
	return r, nil
}

func toSwitch(ctx context.Context, kernel *conntrack.Kernel, z zone, s *sight) (Result, error) {
	var r Result
	var through []conntrack.Connection
	over := endings{}
	err := kernel.Dump(func(k conntrack.Connection) {
		switch {
		case k.Zone != 0:
		case ended(&k) && s.within(&k):
			over[k.Original] = true
		case alive(&k) && !unanswered(&k) && (k.Mark&rules.MarkAllowed != 0 || s.ownTraffic(&k)) && (z.tracksSCTP() || k.Original.Protocol != unix.IPPROTO_SCTP):
			through = append(through, k)
		}
	})
	if err != nil || len(through) == 0 && len(over) == 0 {
		return r, err
	}
	// What cannot be read of a dump is said, and the rest is carried.
	known, unread := z.dump(ctx)
	if len(through) == 0 && knowsNothing(unread) {
		return r, nil
	}
	at := make(map[conntrack.Tuple]*conntrack.Connection, len(known))
	var doomed []conntrack.Connection
	for i := range known {
		if k := &known[i]; over.outlived(k) {
			doomed = append(doomed, *k)
		} else {
			at[k.Original] = k
		}
	}
	var seeds []seed
	for _, k := range through {
		for _, x := range s.crossings(&k) {
			r.Allowed++
			if s, lacks := compare(k, x, at); lacks {
				seeds = append(seeds, s)
			}
		}
	}
	if r.Ended, err = z.drop(ctx, doomed); err == nil {
		r.Written, err = z.learn(ctx, seeds)
	}
	return r, errors.Join(unread, err)
}

// compare returns what the zone lacks of a connection, and whether it lacks
// anything.
func compare(k conntrack.Connection, x crossing, at map[conntrack.Tuple]*conntrack.Connection) (seed, bool) {
	s := seed{crossing: x, from: k}
	if s.known = at[x.Tuple]; s.known == nil {
		// Begun by a packet of the other side: that is as good, unless answers
		// must find the way back to the gateway port, or it would be carried so to
		// where it is not (see reversed).
		s.known = at[x.Tuple.Reverse()]
		wrong := x.gateway || k.Original.Protocol == unix.IPPROTO_TCP && opened(&k)
		return s, s.known == nil || wrong || !isAllowed(s.known) || isOver(s.known)
	}
	right := isAllowed(s.known) && s.known.Mark == x.mark() &&
		(s.known.Replied || !k.Replied) && !isOver(s.known) && !expires(s.known, s.known)
	return s, !right
}
