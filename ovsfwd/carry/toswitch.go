package carry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// allowedLabel is the ct_label bit that the pipeline sets on connections that policy
// allowed.
func allowedLabel() conntrack.Label {
	l := pipeline.AllowedLabel()
	return conntrack.Label{High: l.Hi, Low: l.Lo}
}

func isAllowed(k *conntrack.Connection) bool {
	l := allowedLabel()
	return k.Label.High&l.High == l.High && k.Label.Low&l.Low == l.Low
}

// ToSwitch copies to the switch the connections that the kernel allowed, and those
// between the node itself and pods.
func (c *Carrier) ToSwitch(ctx context.Context) (Result, error) { return c.toSwitch(ctx, false) }

// ToSwitchAhead is ToSwitch while packets are still led to the kernel.
func (c *Carrier) ToSwitchAhead(ctx context.Context) (Result, error) { return c.toSwitch(ctx, true) }

func (c *Carrier) toSwitch(ctx context.Context, ahead bool) (Result, error) {
	var r Result
	s, err := c.look()
	if err == nil {
		err = c.withZone(ctx, func(kernel *conntrack.Kernel, z zone) (err error) {
			r, err = toSwitch(ctx, kernel, z, s, ahead)
			return err
		})
	}
	if err != nil {
		return r, fmt.Errorf("carry connections to the switch: %w", err)
	}
	return r, nil
}

func toSwitch(ctx context.Context, kernel *conntrack.Kernel, z zone, s *sight, ahead bool) (Result, error) {
	var r Result
	if err := z.loosen(ctx); err != nil && !knowsNothing(err) {
		return r, err
	}
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
	if err != nil || len(through) == 0 && len(over) == 0 && !ahead {
		return r, err
	}
	// What begins in the host now goes on there, so the zone gets no entry for it. An entry that it has is of an older connection with these ports, whose end the
	// zone has not seen.
	asks := map[conntrack.Tuple]bool{}
	if ahead {
		through = slices.DeleteFunc(through, func(k conntrack.Connection) bool {
			if k.Original.Protocol != unix.IPPROTO_TCP || k.Replied || !opened(&k) {
				return false
			}
			for _, x := range s.bridgeTuples(&k) {
				asks[x.Tuple] = true
			}
			return true
		})
	}
	// The error names the entries that cannot be read; the others are copied.
	known, unread := z.dump(ctx)
	if len(through) == 0 && knowsNothing(unread) {
		return r, nil
	}
	at := make(map[conntrack.Tuple]*conntrack.Connection, len(known))
	var obsolete []conntrack.Connection
	for i := range known {
		if k := &known[i]; over.outlived(k) || asks[k.Original] && k.Replied {
			obsolete = append(obsolete, *k)
		} else {
			at[k.Original] = k
		}
	}
	services, moved, err := z.services(ctx)
	unread = errors.Join(unread, err)
	led, elsewhere := map[conntrack.Tuple]bool{}, services
	if !ahead { // else the bridge leads nothing
		led, elsewhere = ledHere(through, services, moved, at, s)
	}
	var seeds []seed
	for _, k := range through {
		if led[k.Original] {
			r.Allowed++
			continue
		}
		for _, x := range s.bridgeTuples(&k) {
			r.Allowed++
			if s, lacks := compare(k, x, at); lacks {
				seeds = append(seeds, s)
			}
		}
	}
	if r.Ended, err = z.drop(ctx, obsolete); err == nil {
		r.Written, err = z.learn(ctx, seeds)
	}
	if err == nil { // only now: until then the host's connections are not known
		_, err = z.dropServices(ctx, elsewhere)
	}
	return r, errors.Join(unread, err)
}

// compare returns the entry that the zone needs for a connection, and whether the
// zone lacks it or has it wrong.
func compare(k conntrack.Connection, x bridgeTuple, at map[conntrack.Tuple]*conntrack.Connection) (seed, bool) {
	s := seed{bridgeTuple: x, from: k}
	if s.known = at[x.Tuple]; s.known == nil {
		// The entry began with a reply packet. That is as good, with two exceptions:
		// replies must find the way back to the gateway port, or a later copy would
		// take the wrong direction along (see reversed).
		s.known = at[x.Tuple.Reverse()]
		wrong := x.gateway || k.Original.Protocol == unix.IPPROTO_TCP && opened(&k)
		return s, s.known == nil || wrong || !isAllowed(s.known) || isOver(s.known)
	}
	right := isAllowed(s.known) && s.known.Mark == x.mark() &&
		(s.known.Replied || !k.Replied) && !isOver(s.known) && !expires(s.known, s.known)
	return s, !right
}
