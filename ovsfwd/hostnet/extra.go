package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	socket "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ifaProto is the attribute with the protocol number of an address (IFA_PROTO of linux/if_addr.h, since Linux 5.18).
const ifaProto = 11

// Addresses keeps addresses on the interfaces of this node beside those of other programs. Its addresses have our
// protocol number (Protocol), so that a later process finds and removes them. The host does not choose them as the source of
// its own packets.
type Addresses struct {
	// NetNS is the descriptor of the network namespace; the caller's if zero.
	NetNS int
	// read is set once the kernel's addresses have been read.
	read bool
	// announced are the addresses that neighbours have been told of.
	announced map[netip.Addr]int32
}

// extra is an address in the kernel.
type extra struct {
	addr  netip.Addr
	index int32
	ours  bool
	// copied is set if it is the copy of an address of the uplink. It comes and goes with that one.
	copied bool
}

// Apply adds the wanted addresses to the interface with the node's own address of the family, and tells neighbours. With
// a userspace bridge that is the uplink, from which the bridge gets a copy (package uplink). It leaves an address as it is if another program has added it. It removes our other addresses. It returns the number of
// writes.
func (a *Addresses) Apply(wanted, node []netip.Addr) (writes int, err error) {
	if a.read && len(wanted) == 0 && len(a.announced) == 0 {
		return 0, nil
	}
	s, err := socket.Dial(unix.NETLINK_ROUTE, &socket.Config{NetNS: a.NetNS})
	if err != nil {
		return 0, fmt.Errorf("connect to netlink: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	all, err := listExtra(s)
	if err != nil {
		return 0, err
	}
	var errs []error
	has := map[netip.Addr]bool{}
	for _, e := range all {
		at, _ := placeFor(all, node, e.addr)
		if e.copied {
			continue
		}
		if !e.ours || slices.Contains(wanted, e.addr) && e.index == at {
			has[e.addr] = true
			continue
		}
		if err := e.write(s, unix.RTM_DELADDR, 0); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("remove address %s: %w", e.addr, err))
			continue
		}
		writes++
	}
	told := map[netip.Addr]int32{}
	for _, addr := range wanted {
		at, ok := placeFor(all, node, addr)
		if !ok {
			errs = append(errs, fmt.Errorf("add address %s: no interface has an address of this node", addr))
			continue
		}
		if !has[addr] {
			if err := (extra{addr: addr, index: at}).write(s, unix.RTM_NEWADDR, socket.Create|socket.Excl); err != nil {
				errs = append(errs, fmt.Errorf("add address %s: %w", addr, err))
				continue
			}
			writes++
		}
		if !has[addr] || a.announced[addr] != at {
			if err := announce(at, addr); err != nil {
				errs = append(errs, fmt.Errorf("tell the neighbours of address %s: %w", addr, err))
				continue
			}
		}
		told[addr] = at
	}
	a.announced, a.read = told, true
	return writes, errors.Join(errs...)
}

// placeFor returns the interface that is to have an address: the one with the node's address of the family, or else of the other
// family.
func placeFor(all []extra, node []netip.Addr, addr netip.Addr) (index int32, ok bool) {
	for _, same := range []bool{true, false} {
		for _, e := range all {
			if !e.ours && !e.copied && slices.Contains(node, e.addr) && (e.addr.Is4() == addr.Is4()) == same {
				return e.index, true
			}
		}
	}
	return 0, false
}

// listExtra lists all addresses.
func listExtra(s *socket.Conn) ([]extra, error) {
	answers, err := s.Execute(socket.Message{
		Header: socket.Header{Type: unix.RTM_GETADDR, Flags: socket.Request | socket.Dump}, Data: make([]byte, unix.SizeofIfAddrmsg),
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var all []extra
	for _, m := range answers {
		if m.Header.Type != unix.RTM_NEWADDR || len(m.Data) < unix.SizeofIfAddrmsg {
			continue
		}
		e := extra{index: int32(binary.NativeEndian.Uint32(m.Data[4:]))}
		d, err := socket.NewAttributeDecoder(m.Data[unix.SizeofIfAddrmsg:])
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		local := false
		for d.Next() {
			switch d.Type() {
			case unix.IFA_LOCAL:
				e.addr, local = netip.Addr{}, true
				e.addr, _ = netip.AddrFromSlice(d.Bytes())
			case unix.IFA_ADDRESS:
				if !local {
					e.addr, _ = netip.AddrFromSlice(d.Bytes())
				}
			case ifaProto:
				e.ours, e.copied = d.Uint8() == Protocol, d.Uint8() == CopyProtocol
			}
		}
		if err := d.Err(); err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		all = append(all, e)
	}
	return all, nil
}

// write adds or removes the address.
func (e extra) write(s *socket.Conn, kind socket.HeaderType, flags socket.HeaderFlags) error {
	data := make([]byte, unix.SizeofIfAddrmsg)
	data[0], data[1] = unix.AF_INET, 32
	if e.addr.Is6() {
		data[0], data[1] = unix.AF_INET6, 128
	}
	binary.NativeEndian.PutUint32(data[4:], uint32(e.index))
	enc := socket.NewAttributeEncoder()
	enc.Bytes(unix.IFA_LOCAL, e.addr.AsSlice())
	enc.Bytes(unix.IFA_ADDRESS, e.addr.AsSlice())
	if kind == unix.RTM_NEWADDR {
		enc.Uint8(ifaProto, Protocol)
		if e.addr.Is6() {
			// Without a check for duplicates the address works at once: a node takes it over from another one.
			enc.Uint32(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE)
			// struct ifa_cacheinfo: never preferred (RFC 6724, section 5, rule 3), valid for ever.
			info := make([]byte, 16)
			binary.NativeEndian.PutUint32(info[4:], math.MaxUint32)
			enc.Bytes(unix.IFA_CACHEINFO, info)
		}
	}
	attributes, err := enc.Encode()
	if err != nil {
		return err
	}
	_, err = s.Execute(socket.Message{
		Header: socket.Header{Type: kind, Flags: socket.Request | socket.Acknowledge | flags}, Data: append(data, attributes...),
	})
	return err
}
