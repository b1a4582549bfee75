package hostnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	socket "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// settingsPoll is the time between two reads of the sysctls. The kernel notifies of
	// forwarding and rp_filter only (RTM_NEWNETCONF). A read takes some 50 us.
	settingsPoll = 500 * time.Millisecond
	// watchBuffer is the size of the receive buffer in bytes: a flushed table of routes
	// or neighbours is one notification for each entry.
	watchBuffer = 1 << 20
)

// watchGroups returns the groups of rtnetlink that Watch joins.
func watchGroups() []uint32 {
	return []uint32{
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	}
}

// Watch calls changed after each foreign change that the next Apply would repair, until ctx
// ends. It compares the kernel's notifications with the desired state, so writes of Apply
// cause no call. After lost notifications it calls changed for a check of everything. It calls
// at most once a second while another program undoes every repair.
//
// The kernel removes IPv4 routes with their interface or their source address, and sends no
// notification for the routes. So Watch treats the end of the gateway port, or of an address, as a change.
func (r *Reconciler) Watch(ctx context.Context, changed func()) (err error) {
	s, err := socket.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("connect to netlink: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, group := range watchGroups() {
		if err := s.JoinGroup(group); err != nil {
			return fmt.Errorf("join group %d of rtnetlink: %w", group, err)
		}
	}
	if err := s.SetReadBuffer(watchBuffer); err != nil {
		return fmt.Errorf("set the receive buffer of rtnetlink: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	r.drift.missed(changed)
	polled := time.Now()
	for ctx.Err() == nil {
		if err := s.SetReadDeadline(polled.Add(settingsPoll)); err != nil {
			return fmt.Errorf("wait for notifications: %w", err)
		}
		messages, err := s.Receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, unix.ENOBUFS):
			r.drift.missed(changed)
		case err != nil:
			return fmt.Errorf("read notifications: %w", err)
		}
		poll := time.Since(polled) >= settingsPoll
		for _, m := range messages {
			poll = poll || m.Header.Type == unix.RTM_NEWNETCONF
			if name := r.drift.concerned(m); name != "" {
				r.drift.note(name, changed)
			}
		}
		if poll {
			polled = time.Now()
			r.drift.pollSettings(changed)
		}
	}
	return ctx.Err()
}

// pollSettings looks for sysctls that differ. It skips an unreadable setting: its interface is
// gone, and the kernel sends a notification for that.
func (d *drift) pollSettings(changed func()) {
	d.mu.Lock()
	wanted, applied := d.wanted, d.applied
	d.mu.Unlock()
	if !applied {
		return
	}
	for _, s := range settings(wanted.Gateway) {
		if _, differs, err := s.read(); differs && err == nil {
			d.note(kindSysctl+" "+s.name(), changed)
		}
	}
}
