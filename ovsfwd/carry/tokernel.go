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

// ToKernel makes the kernel know the connections that the switch has let
// through.
func (c *Carrier) ToKernel(ctx context.Context) (Result, error) {
	var r Result
	s, err := c.look()
	if err == nil {
		err = c.withZone(ctx, func(kernel *conntrack.Kernel, z zone) (err error) {
			r, err = toKernel(ctx, kernel, z, s)
			return err
		})
	}
	if err != nil {
		return r, fmt.Errorf("carry connections to the kernel: %w", err)
	}
	return r, nil
}

func toKernel(ctx context.Context, kernel *conntrack.Kernel, z zone, s *sight) (Result, error) {
	// What cannot be read of a dump is said, and the rest is carried.
	known, unread := z.dump(ctx)
	if knowsNothing(unread) {
		return Result{}, nil
	}
	wanted := allowed(known, z.tracksSCTP())
	r := Result{Allowed: len(wanted.list)}
	if len(wanted.list) == 0 {
		return r, unread
	}
	var puts []conntrack.Put
	err := kernel.Dump(func(k conntrack.Connection) {
		if k.Zone != 0 {
			return
		}
		if from := wanted.find(&k); from != nil {
			if p, wrong := put(k, from); wrong {
				puts = append(puts, p)
			}
		}
	})
	if err != nil {
		return r, errors.Join(unread, err)
	}
	puts = append(puts, wanted.missing(s)...)
	r.Written, err = kernel.Write(puts)
	return r, errors.Join(unread, err)
}

// wanted is the connections that the kernel is to know.
type wanted struct {
	list []conntrack.Connection
	// at finds them by their original direction.
	at map[conntrack.Tuple]int
	// found tells which of them the kernel has.
	found []bool
}

// allowed picks the connections of the zone that policy has let through.
func allowed(known []conntrack.Connection, sctp bool) *wanted {
	w := &wanted{at: make(map[conntrack.Tuple]int, len(known))}
	for i := range known {
		k := &known[i]
		if !isAllowed(k) || !alive(k) || !sctp && k.Original.Protocol == unix.IPPROTO_SCTP {
			continue
		}
		w.at[k.Original] = len(w.list)
		w.list = append(w.list, *k)
	}
	w.found = make([]bool, len(w.list))
	return w
}

// find returns the zone's connection that an entry of the kernel is about. The
// bridge sees it before the host's translation, behind it, or both; and an entry
// may have been begun by a packet of the other side, from the middle of a
// stream.
func (w *wanted) find(k *conntrack.Connection) *conntrack.Connection {
	var first *conntrack.Connection
	for _, t := range []conntrack.Tuple{k.Original, k.Reply.Reverse(), k.Reply} {
		if i, ok := w.at[t]; ok {
			w.found[i] = true
			if first == nil {
				first = &w.list[i]
			}
		}
	}
	return first
}

// put returns what an entry of the kernel lacks for a connection to go on, and
// whether it lacks anything. What the host translates has all gone through it,
// so that it knows how far the connection is.
func put(k conntrack.Connection, from *conntrack.Connection) (conntrack.Put, bool) {
	wrong := k.Mark&rules.MarkAllowed == 0 || k.Original.Protocol == unix.IPPROTO_TCP && !k.Liberal
	p := conntrack.Put{Connection: k, MarkMask: rules.MarkAllowed}
	p.Mark, p.Liberal = rules.MarkAllowed, true
	if !k.Translated() && from.Replied {
		stale := k.Original.Protocol == unix.IPPROTO_TCP && from.State.Lives() && !k.State.Lives()
		p.Revive = !k.Replied || stale || expires(&k, from)
		if p.Revive {
			p.Replied, p.State, p.VTags, p.Timeout = true, settled(from), from.VTags, lifetime(from)
		}
	}
	return p, wrong || p.Revive
}

// missing returns the entries that the kernel does not have. Only connections
// that do not go through the host may lack there: of one that does the entry
// has ended, or it is translated in a way that is not known here.
func (w *wanted) missing(s *sight) []conntrack.Put {
	var puts []conntrack.Put
	for i, k := range w.list {
		if w.found[i] || k.Mark == pipeline.GatewayMark || !s.behindBridge(k.Original.Dst) {
			continue
		}
		k.State, k.Timeout, k.Liberal = settled(&k), lifetime(&k), true
		k.Zone, k.Label, k.Mark = 0, conntrack.Label{}, rules.MarkAllowed
		puts = append(puts, conntrack.Put{Connection: k, New: true, MarkMask: rules.MarkAllowed})
	}
	return puts
}

// ForgetAllowed takes the mark of what policy has let through from the
// connections of the kernel that do not go through the host any more, and
// returns how many had it. It is for when the switch judges packets, and knows
// them: the kernel keeps an entry for days after the last packet that it saw, and
// must not take a later connection of the same ends for the one that was allowed.
// ToKernel marks again what goes on.
func (c *Carrier) ForgetAllowed(ctx context.Context) (int, error) {
	forgotten := 0
	s, err := c.look()
	if err == nil {
		err = c.withZone(ctx, func(kernel *conntrack.Kernel, _ zone) (err error) {
			forgotten, err = forgetAllowed(kernel, s)
			return err
		})
	}
	if err != nil {
		return forgotten, fmt.Errorf("unmark connections that the switch has taken over: %w", err)
	}
	return forgotten, nil
}

func forgetAllowed(kernel *conntrack.Kernel, s *sight) (int, error) {
	var puts []conntrack.Put
	err := kernel.Dump(func(k conntrack.Connection) {
		within := s.behindBridge(k.Original.Src) && s.behindBridge(k.Original.Dst) && !k.Translated()
		if within && k.Zone == 0 && k.Mark&rules.MarkAllowed != 0 {
			k.Mark = 0
			puts = append(puts, conntrack.Put{Connection: k, MarkMask: rules.MarkAllowed})
		}
	})
	if err != nil {
		return 0, err
	}
	return kernel.Write(puts)
}
