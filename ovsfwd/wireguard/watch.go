package wireguard

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
	// lookEvery is the time between two reads of the device without a notification.
	lookEvery = 5 * time.Second
	// lookAgain is the least time between two reads: each new pod is a change of a link.
	lookAgain = 100 * time.Millisecond
)

// Watch calls changed after each foreign change that the next Apply would repair, until ctx ends. It reads the device when a
// link or an address changes, and every lookEvery: the kernel reports no changes of keys and peers.
func (d *Device) Watch(ctx context.Context, changed func()) (err error) {
	s, err := socket.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("connect to netlink: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, group := range []uint32{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR} {
		if err := s.JoinGroup(group); err != nil {
			return fmt.Errorf("join group %d of rtnetlink: %w", group, err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var looked, next time.Time
	for ctx.Err() == nil {
		if now := time.Now(); !now.Before(next) {
			if d.differs(now) {
				changed()
			}
			looked, next = now, now.Add(lookEvery)
		}
		if err := s.SetReadDeadline(next); err != nil {
			return fmt.Errorf("wait for notifications: %w", err)
		}
		switch _, err := s.Receive(); {
		case err == nil, errors.Is(err, unix.ENOBUFS):
			next = looked.Add(lookAgain)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("read notifications: %w", err)
		}
	}
	return ctx.Err()
}

// differs reports whether the observed state differs from the one that an Apply has programmed.
func (d *Device) differs(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.clean {
		return false // the next Apply reads anyway
	}
	todo, err := d.differences()
	if err == nil && len(todo) == 0 {
		return false
	}
	d.clean, d.noticed = false, now
	return true
}
