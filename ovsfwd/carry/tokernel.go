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
	if len(wanted.list) == 0 && len(wanted.ended) == 0 {
		return r, unread
	}
	var puts []conntrack.Put
	var doomed []conntrack.Connection
	err := kernel.Dump(func(k conntrack.Connection) {
		switch {
		case k.Zone != 0:
		case wanted.ended.outlived(&k):
			r.Ended++
			doomed = append(doomed, k)
		case wanted.reversed(&k, s):
			doomed = append(doomed, k)
		default:
			if from := wanted.find(&k); from != nil {
				if p, wrong := put(k, from); wrong {
					puts = append(puts, p)
				}
			}
		}
	})
	if err == nil {
		_, err = kernel.Delete(doomed)
	}
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
	// ended are those that the kernel need not know any more.
	ended endings
}

// allowed picks the connections of the zone that policy has let through.
func allowed(known []conntrack.Connection, sctp bool) *wanted {
	w := &wanted{at: make(map[conntrack.Tuple]int, len(known)), ended: endings{}}
	for i := range known {
		k := &known[i]
		if ended(k) && k.Mark != pipeline.GatewayMark {
			w.ended[k.Original] = true
		}
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

// reversed reports whether an entry of the kernel takes the server of a TCP
// connection for who opened it, since it was begun by a packet from the middle of
// the stream. The connection goes on by it. But such an entry is kept for days when
// it has not met the connection's end, and then the client's next connection from
// the same port would not open: its SYN would be invalid, as the answer that it is
// taken for. missing returns what is to stand in its place.
func (w *wanted) reversed(k *conntrack.Connection, s *sight) bool {
	i, known := w.at[k.Reply]
	return known && k.Original.Protocol == unix.IPPROTO_TCP && !k.Translated() && opened(&w.list[i]) && s.unseen(&w.list[i])
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
		if w.found[i] || !s.unseen(&k) {
			continue
		}
		whole := lifetime(&k)
		if !k.Replied {
			whole = min(whole, k.Timeout)
		}
		k.State, k.Timeout, k.Liberal = settled(&k), whole, true
		k.Zone, k.Label, k.Mark = 0, conntrack.Label{}, rules.MarkAllowed
		puts = append(puts, conntrack.Put{Connection: k, New: true, MarkMask: rules.MarkAllowed})
	}
	return puts
}

// unseen reports whether a connection of the zone does not go through the host.
func (s *sight) unseen(k *conntrack.Connection) bool {
	return k.Mark != pipeline.GatewayMark && s.behindBridge(k.Original.Dst)
}

// ForgetInKernel forgets the connections of the kernel that do not go through the
// host any more, and returns how many it knew. It is for when the switch judges
// packets, and knows them: the kernel keeps an entry for days after the last packet
// that it saw, and must not take a later connection of the same ends for the one
// that was allowed, or for its continuation. Of what is not TCP, whose packets all
// look alike, it only takes the mark of what policy has let through. ToKernel writes
// what goes on.
//
// It also forgets TCP connections to pods whose source the host has hidden behind its
// own address, if nobody has answered yet, or they have ended: who asks again, from the
// same port, would still have that address, and not be let in as the node.
func (c *Carrier) ForgetInKernel(ctx context.Context) (int, error) {
	forgotten := 0
	s, err := c.look()
	if err == nil {
		err = c.withZone(ctx, func(kernel *conntrack.Kernel, _ zone) (err error) {
			forgotten, err = forgetInKernel(kernel, s)
			return err
		})
	}
	if err != nil {
		return forgotten, fmt.Errorf("forget connections that the switch has taken over: %w", err)
	}
	return forgotten, nil
}

func forgetInKernel(kernel *conntrack.Kernel, s *sight) (int, error) {
	var doomed []conntrack.Connection
	var puts []conntrack.Put
	err := kernel.Dump(func(k conntrack.Connection) {
		switch {
		case k.Zone == 0 && s.hidden(&k) && k.Original.Protocol == unix.IPPROTO_TCP && (!k.Replied || k.State > conntrack.StateLastAck):
			doomed = append(doomed, k)
		case k.Zone != 0 || !s.within(&k):
		case k.Original.Protocol == unix.IPPROTO_TCP:
			doomed = append(doomed, k)
		case k.Mark&rules.MarkAllowed != 0:
			k.Mark = 0
			puts = append(puts, conntrack.Put{Connection: k, MarkMask: rules.MarkAllowed})
		}
	})
	if err != nil {
		return 0, err
	}
	deleted, err := kernel.Delete(doomed)
	if err != nil {
		return deleted, err
	}
	unmarked, err := kernel.Write(puts)
	return deleted + unmarked, err
}
