package hostnet

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	socket "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Intervals of WatchAddresses.
const (
	// gather is the wait for further notifications after the first one: a proxy for
	// Services adds hundreds of addresses at once.
	gather = 10 * time.Millisecond
	// relistMin and relistMax bound the wait after an error.
	relistMin = 100 * time.Millisecond
	relistMax = 5 * time.Second
)

// WatchAddresses calls update with all addresses that this network namespace answers
// to, and with the same addresses with the length of their prefixes, both sorted, until ctx ends: once at the start, then after each change of an address or
// of the interface that has it. It leaves out loopback addresses, IPv6 link-local
// ones, and addresses of interfaces that are down, which the kernel does not answer to.
// After an error it calls failed and tries again. It reads the whole list each time, so
// lost notifications do no harm.
//
// uplink, which may be nil, returns the interface whose routes belong on the bridge: update is called again, also with
// the same addresses, after a route was added to it. A network daemon adds its prefix route anew when it renews a
// lease, and ovs-vswitchd, which ignores metrics, would send tunnel packets by it.
func WatchAddresses(ctx context.Context, uplink func() string, update func([]netip.Addr, []netip.Prefix), failed func(error)) error {
	w := &addressWatch{update: update, uplink: uplink}
	return again(ctx, w.run, func(err error) { failed(fmt.Errorf("watch this node's addresses: %w", err)) })
}

// addressWatch holds the addresses that were reported last.
type addressWatch struct {
	update func([]netip.Addr, []netip.Prefix)
	uplink func() string
	// uplinkIndex is the uplink's, or 0 while it is not known.
	uplinkIndex int32
	// reported is unset while update has to be called, whatever the addresses.
	reported bool
	last     []placed
	// up are the interfaces with such addresses, and whether they are up.
	up map[int32]bool
}

// placed is an address and its interface.
type placed struct {
	addr  netip.Addr
	index int32
	bits  int
}

// run subscribes, and reads the list after each notification, until something
// fails or ctx ends.
func (w *addressWatch) run(ctx context.Context) (err error) {
	s, err := socket.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("connect to netlink: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	groups := []uint32{unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_LINK}
	if w.uplink != nil {
		groups = append(groups, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	}
	for _, group := range groups {
		if err := s.JoinGroup(group); err != nil {
			return fmt.Errorf("join group %d of rtnetlink: %w", group, err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		whole, err := w.list()
		if err != nil {
			return err
		}
		for concerned := !whole; !concerned; {
			messages, err := s.Receive()
			if concerned = errors.Is(err, unix.ENOBUFS); err != nil && !concerned {
				return fmt.Errorf("read notifications: %w", err)
			}
			if concerned || slices.ContainsFunc(messages, w.uplinkGetsRoute) {
				concerned, w.reported = true, false
			}
			concerned = concerned || slices.ContainsFunc(messages, w.concerns)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(gather):
		}
	}
}

// concerns reports whether a notification may change the list.
func (w *addressWatch) concerns(m socket.Message) bool {
	switch m.Header.Type {
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return true
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return true
		}
		// Of struct ifinfomsg. The interfaces of pods have no such addresses.
		index := int32(binary.NativeEndian.Uint32(m.Data[4:]))
		flags := binary.NativeEndian.Uint32(m.Data[8:])
		up, ours := w.up[index]
		return ours && (m.Header.Type == unix.RTM_DELLINK || up != (flags&unix.IFF_UP != 0))
	}
	return false
}

// uplinkGetsRoute reports whether a notification is of a route that was added to the uplink.
func (w *addressWatch) uplinkGetsRoute(m socket.Message) bool {
	if m.Header.Type != unix.RTM_NEWROUTE {
		return false
	}
	if w.uplinkIndex == 0 {
		link, err := net.InterfaceByName(w.uplink())
		if err != nil {
			return false
		}
		w.uplinkIndex = int32(link.Index)
	}
	a, ok := attributes(m.Data, unix.SizeofRtMsg)
	// Local and multicast routes come with each address, and stay.
	return ok && m.Data[7] == unix.RTN_UNICAST && int32(number(a[unix.RTA_OIF])) == w.uplinkIndex
}

// list reads the addresses and calls update if they have changed. The list is
// incomplete if the addresses changed during the read.
func (w *addressWatch) list() (whole bool, err error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list addresses: %w", err)
	}
	w.up = map[int32]bool{}
	w.uplinkIndex = 0 // it may have been made anew
	var now []placed
	for _, a := range all {
		addr, ok := netip.AddrFromSlice(a.IP)
		if addr = addr.Unmap(); !ok || addr.IsLoopback() || addr.Is6() && addr.IsLinkLocalUnicast() {
			continue
		}
		index := int32(a.LinkIndex)
		if _, known := w.up[index]; !known {
			if w.up[index], err = isUp(a.LinkIndex); err != nil {
				return false, err
			}
		}
		if w.up[index] {
			now = append(now, placed{addr, index, prefixOf(a.IPNet).Bits()})
		}
	}
	slices.SortFunc(now, func(a, b placed) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.index, b.index), cmp.Compare(a.bits, b.bits))
	})
	if !w.reported || !slices.Equal(now, w.last) {
		w.reported, w.last = true, now
		var addrs []netip.Addr
		var subnets []netip.Prefix
		for _, p := range now {
			addrs = append(addrs, p.addr)
			subnets = append(subnets, netip.PrefixFrom(p.addr, p.bits))
		}
		w.update(slices.Compact(addrs), slices.Compact(subnets))
	}
	return true, nil
}

// isUp reports whether an interface is up; a missing interface is not.
func isUp(index int) (bool, error) {
	link, err := netlink.LinkByIndex(index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("interface %d: %w", index, err)
	}
	return link.Attrs().Flags&net.FlagUp != 0, nil
}
