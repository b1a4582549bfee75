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
func WatchAddresses(ctx context.Context, update func([]netip.Addr, []netip.Prefix), failed func(error)) error {
	w := &addressWatch{update: update}
	return again(ctx, w.run, func(err error) { failed(fmt.Errorf("watch this node's addresses: %w", err)) })
}

// addressWatch holds the addresses that were reported last.
type addressWatch struct {
	update   func([]netip.Addr, []netip.Prefix)
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
	for _, group := range []uint32{unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_LINK} {
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
