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

// ToKernel copies the connections that the switch allowed to the kernel.
func (c *Carrier) ToKernel(ctx context.Context) (Result, error) { return c.toKernel(ctx, false) }

// ToKernelBehind is ToKernel with the connections that the bridge leads to Services. The bridge begins no more of them
// then, and the flows of pipeline.CloseServices are there, or no packet follows its flows any more.
func (c *Carrier) ToKernelBehind(ctx context.Context) (Result, error) { return c.toKernel(ctx, true) }

func (c *Carrier) toKernel(ctx context.Context, behind bool) (Result, error) {
	var r Result
	s, err := c.look()
	if err == nil {
		err = c.withZone(ctx, func(kernel *conntrack.Kernel, z zone) (err error) {
			r, err = toKernel(ctx, kernel, z, s, behind)
			return err
		})
	}
	if err != nil {
		return r, fmt.Errorf("carry connections to the kernel: %w", err)
	}
	return r, nil
}

func toKernel(ctx context.Context, kernel *conntrack.Kernel, z zone, s *sight, behind bool) (Result, error) {
	// The error names the entries that cannot be read; the others are copied.
	known, unread := z.dump(ctx)
	if knowsNothing(unread) {
		return Result{}, nil
	}
	services, moved, err := z.services(ctx)
	unread = errors.Join(unread, err)
	wanted := allowed(known, byEndpoint(services, moved), z.tracksSCTP(), behind, s)
	r := Result{Allowed: len(wanted.list)}
	if len(wanted.list) == 0 && len(wanted.ended) == 0 {
		return r, unread
	}
	var puts []conntrack.Put
	var obsolete, toServices []conntrack.Connection
	goesOn := func(k *conntrack.Connection) {
		if from := wanted.find(k); from != nil {
			if p, wrong := put(*k, from); wrong {
				puts = append(puts, p)
			}
		}
	}
	err = kernel.Dump(func(k conntrack.Connection) {
		switch {
		case k.Zone != 0:
		case wanted.ended.outlived(&k):
			r.Ended++
			obsolete = append(obsolete, k)
		case wanted.exchanged(&k): // missing has what replaces it
		case wanted.reversed(&k, s):
			obsolete = append(obsolete, k)
		case wanted.throughService(&k):
			toServices = append(toServices, k)
		default:
			goesOn(&k)
		}
	})
	// Only now it is known which of the connections the host is to have.
	for i := range toServices {
		if k := &toServices[i]; wanted.leadsElsewhere(k) {
			obsolete = append(obsolete, *k)
		} else {
			goesOn(k)
		}
	}
	missing, replaced := wanted.missing(s)
	puts = append(puts, missing...)
	if err == nil {
		_, err = kernel.Delete(append(obsolete, replaced...))
	}
	if err != nil {
		return r, errors.Join(unread, err)
	}
	r.Written, err = kernel.Write(puts)
	return r, errors.Join(unread, err)
}

// wanted is the connections that the kernel should have.
type wanted struct {
	list []conntrack.Connection
	// at finds them by their original direction.
	at map[conntrack.Tuple]int
	// services has for each connection of list the Service to which the bridge leads it, or nil. byService finds the connection by the Service's address.
	services  []*service
	byService map[conntrack.Tuple]int
	// found reports for each connection of list whether the kernel has it.
	found []bool
	// ended are connections that the kernel need not keep.
	ended endings
}

// allowed picks the connections of the zone that policy allowed. Those that the bridge leads to Services get an entry with the Service's address if behind is set.
func allowed(known []conntrack.Connection, led map[conntrack.Tuple]*conntrack.Connection, sctp, behind bool, s *sight) *wanted {
	w := &wanted{at: make(map[conntrack.Tuple]int, len(known)), byService: map[conntrack.Tuple]int{}, ended: endings{}}
	for i := range known {
		k := &known[i]
		if ended(k) && k.Mark != pipeline.GatewayMark {
			w.ended[k.Original] = true
			if through := led[k.Original]; through != nil && throughService(k) {
				w.ended[through.Original] = true
			}
		}
		// The kernel does not know the translation of those with SNATMark: there they would have another source.
		if !isAllowed(k) || !alive(k) || k.Mark&pipeline.SNATMark != 0 || !sctp && k.Original.Protocol == unix.IPPROTO_SCTP {
			continue
		}
		var to *service
		switch through := led[k.Original]; {
		case !throughService(k):
		case !behind && s.unseen(k):
			continue // the bridge leads it: if it ended there, its copy would stay
		case !behind: // the host has one to the endpoint
		case through == nil:
			continue // nobody knows the address that the client used
		default:
			to = &service{original: through.Original, reply: k.Reply, led: s.unseen(k)}
			w.byService[to.original] = len(w.list)
		}
		w.services = append(w.services, to)
		w.at[k.Original] = len(w.list)
		w.list = append(w.list, *k)
	}
	w.found = make([]bool, len(w.list))
	return w
}

// find returns the zone's connection for an entry of the kernel. The bridge sees
// the connection before the host's address translation, after it, or both. And the
// entry may have begun with a reply packet from the middle of a stream.
func (w *wanted) find(k *conntrack.Connection) *conntrack.Connection {
	var first *conntrack.Connection
	for _, t := range []conntrack.Tuple{k.Original, k.Reply.Reverse(), k.Reply} {
		if i, ok := w.at[t]; ok && (w.services[i] == nil || w.services[i].original == k.Original) {
			w.found[i] = true
			if first == nil {
				first = &w.list[i]
			}
		}
	}
	return first
}

// reversed reports whether an entry of the kernel has the server of a TCP
// connection as the originator, because it began with a packet from the middle of
// the stream. The connection itself works. But if the entry does not see the end of
// the connection, it stays for days. The client's next connection from the same port
// then fails: conntrack takes its SYN for a reply, and it is invalid as one. missing
// returns the entry that replaces it.
func (w *wanted) reversed(k *conntrack.Connection, s *sight) bool {
	i, known := w.at[k.Reply]
	return known && k.Original.Protocol == unix.IPPROTO_TCP && !k.Translated() && opened(&w.list[i]) && s.unseen(&w.list[i])
}

// put returns the change that an entry of the kernel needs so that its connection
// goes on, and whether it needs one. The state of a translated connection is not
// changed: all its packets went through the host, so the kernel's state is right.
func put(k conntrack.Connection, from *conntrack.Connection) (conntrack.Put, bool) {
	wrong := k.Mark&rules.MarkAllowed == 0 || k.Original.Protocol == unix.IPPROTO_TCP && !k.Liberal
	p := conntrack.Put{Connection: k, MarkMask: rules.MarkAllowed}
	p.Mark, p.Liberal = rules.MarkAllowed, true
	if (!k.Translated() || throughService(from)) && from.Replied {
		stale := k.Original.Protocol == unix.IPPROTO_TCP && from.State.Lives() && !k.State.Lives()
		p.Revive = !k.Replied || stale || expires(&k, from)
		if p.Revive {
			p.Replied, p.State, p.VTags, p.Timeout = true, settled(from), from.VTags, lifetime(from)
		}
	}
	return p, wrong || p.Revive
}

// missing returns the entries that the kernel lacks, and those to endpoints that others have replaced already. It adds only connections that
// do not go through the host. If one that does has no entry, the entry has ended, or
// the host translates it in a way that is not known here.
func (w *wanted) missing(s *sight) (puts []conntrack.Put, replaced []conntrack.Connection) {
	for i, k := range w.list {
		to := w.services[i]
		if w.found[i] && to != nil && to.instead != nil {
			replaced = append(replaced, *to.instead)
		}
		if w.found[i] || to == nil && !s.unseen(&k) || to != nil && !to.led {
			continue
		}
		whole := lifetime(&k)
		if !k.Replied {
			whole = min(whole, k.Timeout)
		}
		k.State, k.Timeout, k.Liberal = settled(&k), whole, true
		k.Zone, k.Label, k.Mark = 0, conntrack.Label{}, rules.MarkAllowed
		p := conntrack.Put{New: true}
		if to != nil {
			to.lead(&k)
			p.Instead = to.instead
		}
		p.Connection, p.MarkMask = k, k.Mark
		puts = append(puts, p)
	}
	return puts, replaced
}

// unseen reports whether a connection of the zone does not go through the host.
func (s *sight) unseen(k *conntrack.Connection) bool {
	return k.Mark != pipeline.GatewayMark && s.behindBridge(k.Original.Dst)
}

// ForgetInKernel deletes the kernel's entries of connections that no longer go
// through the host, and returns their number. It is called once the switch judges
// packets and has these connections. The kernel keeps an entry for days after its
// last packet. It must not take a later connection between the same ends for the
// allowed one, or for its continuation. Packets of other protocols than TCP all look
// alike: there ForgetInKernel only clears the mark of allowed connections. ToKernel
// writes the live ones again. It also deletes copies of connections that the bridge leads to Services: they are from a change of the backend that
// was given up.
//
// It also deletes TCP connections to pods if the host replaced the client's address
// with its own, and they have no reply yet or have ended. A retry from the same port
// would reuse that address, and would not be let in as the node.
func (c *Carrier) ForgetInKernel(ctx context.Context) (int, error) {
	forgotten := 0
	s, err := c.look()
	if err == nil {
		err = c.withZone(ctx, func(kernel *conntrack.Kernel, z zone) error {
			services, _, err := z.services(ctx)
			if err == nil {
				forgotten, err = forgetInKernel(kernel, s, services)
			}
			return err
		})
	}
	if err != nil {
		return forgotten, fmt.Errorf("forget connections that the switch has taken over: %w", err)
	}
	return forgotten, nil
}

func forgetInKernel(kernel *conntrack.Kernel, s *sight, services []conntrack.Connection) (int, error) {
	led := make(map[conntrack.Tuple]bool, len(services))
	for i := range services {
		led[services[i].Original] = true
	}
	var obsolete []conntrack.Connection
	var puts []conntrack.Put
	err := kernel.Dump(func(k conntrack.Connection) {
		switch {
		case k.Zone == 0 && s.hidden(&k) && k.Original.Protocol == unix.IPPROTO_TCP && (!k.Replied || k.State > conntrack.StateLastAck):
			obsolete = append(obsolete, k)
		case k.Zone == 0 && led[k.Original] && k.Mark&rules.MarkService != 0 && k.Original.Protocol == unix.IPPROTO_TCP:
			obsolete = append(obsolete, k)
		case k.Zone != 0 || !s.within(&k):
		case k.Original.Protocol == unix.IPPROTO_TCP:
			obsolete = append(obsolete, k)
		case k.Mark&rules.MarkAllowed != 0:
			k.Mark = 0
			puts = append(puts, conntrack.Put{Connection: k, MarkMask: rules.MarkAllowed})
		}
	})
	if err != nil {
		return 0, err
	}
	deleted, err := kernel.Delete(obsolete)
	if err != nil {
		return deleted, err
	}
	unmarked, err := kernel.Write(puts)
	return deleted + unmarked, err
}
