// Package uplink moves a node's addresses and routes from its uplink to the
// local port of the userspace bridge that took the uplink in, and back when
// no ovs-vswitchd serves that bridge. A userspace datapath resolves tunnel destinations
// only over such a bridge.
//
// The local port is a tap device that outlives ovs-vswitchd, with its addresses, its routes
// and the record of their uplink. Only "ovs-appctl exit --cleanup" and the removal of the
// bridge remove it. Without ovs-vswitchd it has no carrier, and a node with its addresses
// there is cut off.
//
// While the bridge has the addresses, the host ignores packets that come in by the uplink,
// except TCP (shield.go).
//
// It owns only the move: package ovsdb makes bridge and ports. Several processes move: the agent,
// the supervisor and the removal from the node. A lock allows one at a time (lock.go), and a journal
// has the moved routes (journal.go). It works in the caller's network namespace. A repeated call continues an interrupted one. It is tested with real
// links in a namespace.
//
// The bridge's addresses are copies without a lifetime, because no DHCP client renews them.
// The kernel (from 5.18) marks them as ours ("ip addr" says "proto 0xfe"). If an address
// goes from the uplink, for example one of keepalived or kube-vip that another node took
// over, it goes from the bridge too, while the uplink has the node's own. Addresses that
// another program gave the bridge stay. The agent sees such a change, and a new address,
// at once. While the bridge has the addresses, a strict rp_filter of the uplink is
// loose: all routes lead to the bridge, and the kernel would drop packets that the host
// still takes by the uplink.
package uplink

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
)

// Moved counts the changes of a Move: moved addresses, moved routes of other programs,
// removed copies of addresses that the uplink has lost, and routes that were gone with the
// bridge and are restored. All are zero if nothing changed.
type Moved struct{ Addresses, Routes, Forgotten, Restored int }

// MAC returns the MAC address of an uplink, which the bridge's local port gets too.
func MAC(name string) (net.HardwareAddr, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("uplink %s: %w", name, err)
	}
	return link.Attrs().HardwareAddr, nil
}

// Move moves addresses and routes from one interface to another. The order
// keeps every state on the way resumable: first the new interface gets the
// addresses, then the routes are replaced one by one, and only then does the host ignore
// packets from the old interface.
//
// The old interface keeps its addresses, without routes to their prefixes: when an address
// is removed, the kernel deletes all connections that it masqueraded with this address on
// this interface, for example those of the node to Services (masqueraded.go).
//
// Addresses that the old interface has lost are removed from the new one too, as long as the
// old one has the node's own address. If the caller does not know that address, none are
// removed.
//
// If the bridge was made anew or was down, the kernel has deleted the moved routes. Move first
// gives them back to the old interface, from the journal.
func (in In) Move(from, to string, own netip.Addr) (moved Moved, err error) {
	err = in.locked(func() error {
		moved, err = in.move(from, to, own)
		return err
	})
	return moved, err
}

func (in In) move(from, to string, own netip.Addr) (Moved, error) {
	m, err := newMover(from, to)
	if err != nil {
		return Moved{}, err
	}
	m.own = own
	restored := 0
	if m.lostRoutes() {
		// Before the bridge is up: its own connected routes would hold back those of the uplink.
		if restored, err = in.restoreLost(from); err != nil {
			return Moved{Restored: restored}, err
		}
	}
	moved, err := in.moveServed(m)
	moved.Restored = restored
	return moved, err
}

// moveServed moves to a bridge that is served.
func (in In) moveServed(m *mover) (Moved, error) {
	from, to := m.from.Attrs().Name, m.to.Attrs().Name
	if err := netlink.LinkSetUp(m.to); err != nil {
		return Moved{}, fmt.Errorf("set %s up: %w", to, err)
	}
	if err := served(to); err != nil {
		return Moved{}, err
	}
	if err := m.note(); err != nil {
		return Moved{}, err
	}
	if err := in.before(m); err != nil {
		return Moved{}, err
	}
	if err := m.advertisements(); err != nil {
		return Moved{}, err
	}
	moved, err := m.all()
	if err == nil && m.own.IsValid() {
		moved.Forgotten, err = m.forget()
	}
	if err == nil {
		err = in.after(m)
	}
	if err != nil {
		return moved, err
	}
	return moved, shield(from)
}

// advertisements has the bridge take router advertisements as the uplink does: the host sees them on the bridge
// alone, since the shield drops them on the uplink. The bridge takes routes from them, and no addresses: those of the
// uplink are copied.
func (m *mover) advertisements() error {
	value, err := sysctl.Read(hostnet.AcceptRouterAdvertisements(m.from.Attrs().Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without IPv6
	}
	if err != nil {
		return err
	}
	bridge := m.to.Attrs().Name
	return errors.Join(
		sysctl.Write("net/ipv6/conf/"+bridge+"/autoconf", "0"),
		sysctl.Write(hostnet.AcceptRouterAdvertisements(bridge), value),
	)
}

// lostRoutes reports whether the kernel has deleted the routes that an earlier Move gave the bridge: it
// was made anew, so it has no note, or it is down.
func (m *mover) lostRoutes() bool {
	return noted(m.to.Attrs().Alias).name != m.from.Attrs().Name || isDown(m.to)
}

// before adds the routes that are about to move to the journal.
func (in In) before(m *mover) error {
	moving, err := m.routesOf(m.from)
	if err != nil || len(moving) == 0 {
		return err
	}
	there, err := m.routesOf(m.to)
	if err != nil {
		return err
	}
	return in.write(m.from, append(there, moving...))
}

// after makes the journal equal to the routes of the bridge, so that it has no route that another program
// has deleted since.
func (in In) after(m *mover) error {
	there, err := m.routesOf(m.to)
	if err != nil {
		return err
	}
	return in.write(m.from, there)
}

// all moves both families.
func (m *mover) all() (Moved, error) {
	var moved Moved
	// An error here loses connections. That is better than a node that is cut off.
	err := m.unbind()
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		err = errors.Join(err, m.family(family, &moved))
	}
	if err != nil {
		return moved, fmt.Errorf("move addresses from %s to %s: %w", m.from.Attrs().Name, m.to.Attrs().Name, err)
	}
	return moved, nil
}

// carrierTries times carrierPause is the time in which a new interface must get a
// carrier.
const (
	carrierTries = 100
	carrierPause = 10 * time.Millisecond
)

// served returns an error unless an ovs-vswitchd serves the interface. A tap device outlives
// its ovs-vswitchd, but has no carrier then, and a node with its addresses there is cut off.
func served(name string) error {
	for try := range carrierTries {
		if carrier, err := hasCarrier(name); carrier || err != nil {
			return err
		}
		if try < carrierTries-1 {
			time.Sleep(carrierPause)
		}
	}
	return fmt.Errorf("bridge port %s has no carrier: ovs-vswitchd does not serve it", name)
}

func hasCarrier(name string) (bool, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return false, fmt.Errorf("bridge port %s: %w", name, err)
	}
	return link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0, nil
}

func (m *mover) family(family int, moved *Moved) error {
	addrs, err := addresses(m.from, family)
	if err != nil {
		return err
	}
	if m.back {
		if addrs, err = m.withoutStale(addrs, family); err != nil {
			return err
		}
	}
	has, err := addresses(m.to, family)
	if err != nil {
		return err
	}
	if !m.back {
		addrs = onBridge(addrs, m.own)
	}
	given := 0
	for _, a := range addrs {
		if m.there(has, a) {
			continue
		}
		if err := m.give(a); err != nil {
			return fmt.Errorf("add %s: %w", a.IPNet, err)
		}
		given++
	}
	connected, made, err := m.reroute(family)
	moved.Addresses += max(given, connected)
	moved.Routes += made
	return err
}

// reroute moves the routes of a family. It counts the routes to the prefixes of addresses, and
// those of other programs.
func (m *mover) reroute(family int) (connected, made int, err error) {
	all, err := routes(m.from, family)
	if err != nil {
		return 0, 0, err
	}
	has, err := routes(m.to, family)
	if err != nil {
		return 0, 0, err
	}
	for _, r := range all {
		kernels := r.Protocol == unix.RTPROT_KERNEL
		// The kernel made the route to the prefix with the address.
		if !kernels || !slices.ContainsFunc(has, func(h netlink.Route) bool { return h.Protocol == r.Protocol && sameDestination(h, r) }) {
			if err := m.twin(r); err != nil {
				return connected, made, fmt.Errorf("route %s: %w", r, err)
			}
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return connected, made, fmt.Errorf("delete route %s: %w", r, err)
		}
		if kernels {
			connected++
		} else {
			made++
		}
	}
	return connected, made, nil
}

func sameDestination(a, b netlink.Route) bool {
	return a.Dst != nil && b.Dst != nil && a.Dst.String() == b.Dst.String() && a.Priority == b.Priority
}

// twin adds the same route on the new interface. In IPv4 it replaces the old route; in IPv6
// both can exist.
func (m *mover) twin(r netlink.Route) error {
	r.LinkIndex = m.to.Attrs().Index
	// The kernel reports these flags, but does not accept them.
	r.Flags &^= unix.RTNH_F_LINKDOWN | unix.RTNH_F_DEAD
	err := netlink.RouteReplace(&r)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}
