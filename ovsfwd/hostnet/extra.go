package hostnet

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	socket "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ifaProto is the attribute with the protocol number of an address (IFA_PROTO of linux/if_addr.h, since Linux 5.18).
const ifaProto = 11

// Addresses keeps addresses on the interfaces of this node beside those of other programs. Its addresses have our
// protocol number (Protocol), so that a later process finds and removes them. The host does not choose them as the source of
// its own packets. Its methods may be called from any goroutine.
type Addresses struct {
	// NetNS is the descriptor of the network namespace; the caller's if zero.
	NetNS int

	mu sync.Mutex
	// wanted are those of the last Apply, nil before the first one.
	wanted *Wanted
	// present is set if addresses of ours may be on an interface.
	present bool
	// announced are the addresses that neighbours have been told of.
	announced map[netip.Addr]int32
	// refused are the addresses that are not free.
	refused map[netip.Addr]refusal
	// held are the addresses that Hold allows, until a time. The kernel has times up to extended.
	held            []netip.Addr
	until, extended time.Time

	// outcome is that of the last call, for readers that must not wait for a probe.
	outcome atomic.Pointer[outcome]
}

// outcome are the addresses that are on interfaces, and those that are not free.
type outcome struct {
	has     map[netip.Addr]bool
	refused map[netip.Addr]error
}

// unlock publishes the outcome of a call.
func (a *Addresses) unlock() {
	o := &outcome{has: map[netip.Addr]bool{}, refused: map[netip.Addr]error{}}
	for addr := range a.announced {
		o.has[addr] = true
	}
	for addr, r := range a.refused {
		o.refused[addr] = r.why
	}
	a.outcome.Store(o)
	a.mu.Unlock()
}

// Wanted are the addresses for Addresses.
type Wanted struct {
	// Always are addresses that this node has without a limit of time.
	Always []netip.Addr
	// Leased are addresses that this node has while Hold allows it. The kernel removes such an address when its time is over,
	// also if this process has ended. One that is on the interface, and that Hold has not named yet, stays for that time.
	Leased []netip.Addr
	// Node are the addresses of the node itself. The interface with them is one of the places for the others (see places).
	Node []netip.Addr
}

// extra is an address in the kernel.
type extra struct {
	addr  netip.Addr
	index int32
	// link is the prefix that the kernel takes for the interface's.
	link netip.Prefix
	ours bool
	// copied is set if it is the copy of an address of the uplink. It comes and goes with that one.
	copied bool
	// limited is set if the kernel removes it after a time.
	limited bool
}

// Apply adds the wanted addresses to the interfaces by which their neighbours reach them (places), and tells neighbours. It leaves an address as it is if another program has added it. It removes our other addresses. It returns the number of
// writes.
func (a *Addresses) Apply(w Wanted) (writes int, err error) {
	a.mu.Lock()
	defer a.unlock()
	if a.wanted != nil && !a.present && len(w.Always)+len(w.Leased) == 0 {
		a.wanted = &w
		return 0, nil
	}
	a.wanted = &w
	return a.applyLocked()
}

// Hold allows this node to have leased addresses, these and no others, until a time, which it extends with each call. Those that
// Apply wants are on the interface afterwards.
func (a *Addresses) Hold(held []netip.Addr, until time.Time) error {
	a.mu.Lock()
	defer a.unlock()
	a.held, a.until = slices.Clone(held), until
	if a.wanted == nil {
		return nil // the first Apply adds them, after the rules that need them
	}
	_, err := a.applyLocked()
	return err
}

// Release takes a leased address from this node. It is not on an interface afterwards, if there is no error.
func (a *Addresses) Release(addr netip.Addr) (err error) {
	a.mu.Lock()
	defer a.unlock()
	a.held = slices.DeleteFunc(a.held, func(h netip.Addr) bool { return h == addr })
	s, all, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, e := range all {
		if e.addr == addr && e.ours && e.limited {
			err = errors.Join(err, e.remove(s))
		}
	}
	return err
}

// Probe returns an error if another host has an address, so that this node must not take it.
func (a *Addresses) Probe(addr netip.Addr) (err error) {
	a.mu.Lock()
	defer a.unlock()
	s, all, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if a.wanted == nil || slices.ContainsFunc(all, func(e extra) bool { return e.addr == addr }) {
		return nil
	}
	at, err := newPlaces(s, all, a.wanted.Node)
	if err != nil {
		return err
	}
	place, ok := at.of(addr, true)
	if !ok {
		return nil // Hold says so
	}
	a.probeLocked(s, map[netip.Addr]int32{addr: place})
	return a.refused[addr].why
}

// refusal is why and when an address was found not to be free.
type refusal struct {
	why error
	at  time.Time
}

// refusalAge is how long an election counts as refused that does not ask again.
const refusalAge = time.Minute

// probeLocked notes which addresses are not free, at the interfaces where they are to be. Those that it cannot ask for are not.
func (a *Addresses) probeLocked(s *socket.Conn, at map[netip.Addr]int32) {
	if len(at) == 0 {
		return
	}
	taken, err := foreign(s, at)
	if a.refused == nil {
		a.refused = map[netip.Addr]refusal{}
	}
	for addr := range at {
		delete(a.refused, addr)
		if why := cmp.Or(taken[addr], err); why != nil {
			a.refused[addr] = refusal{why, time.Now()}
		}
	}
}

// Refused returns why this node has not taken addresses that it was to take.
func (a *Addresses) Refused() map[netip.Addr]error {
	if o := a.outcome.Load(); o != nil {
		return o.refused
	}
	return nil
}

// Has reports whether an address was on an interface after the last Apply or Hold, as wanted.
func (a *Addresses) Has(addr netip.Addr) bool {
	o := a.outcome.Load()
	return o != nil && o.has[addr]
}

// open returns a socket and all addresses.
func (a *Addresses) open() (*socket.Conn, []extra, error) {
	s, err := socket.Dial(unix.NETLINK_ROUTE, &socket.Config{NetNS: a.NetNS})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to netlink: %w", err)
	}
	all, err := listExtra(s)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, all, nil
}

func (a *Addresses) applyLocked() (writes int, err error) {
	s, all, err := a.open()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w := a.wanted
	at, err := newPlaces(s, all, w.Node)
	if err != nil {
		return 0, err
	}
	var errs []error
	has := map[netip.Addr]bool{}
	a.present = false
	for _, e := range all {
		if e.copied {
			continue
		}
		leased := slices.Contains(w.Leased, e.addr)
		place, _ := at.of(e.addr, leased)
		if !e.ours || e.index == place && e.limited == leased && (leased || slices.Contains(w.Always, e.addr)) {
			has[e.addr], a.present = true, a.present || e.ours
			if e.ours && leased && a.mayHoldLocked(e.addr) && a.extended != a.until {
				errs = append(errs, e.add(s, socket.Replace, a.until))
			}
			continue
		}
		if err := e.remove(s); err != nil {
			errs = append(errs, err)
			continue
		}
		writes++
	}
	maps.DeleteFunc(a.refused, func(addr netip.Addr, r refusal) bool {
		return !slices.Contains(w.Always, addr) && time.Since(r.at) > refusalAge
	})
	fresh := map[netip.Addr]int32{}
	for _, addr := range w.Always {
		_, had := a.announced[addr]
		if place, ok := at.of(addr, false); ok && !had && !has[addr] {
			fresh[addr] = place
		}
	}
	// A node that takes a leased address has asked before it wrote the Lease.
	a.probeLocked(s, fresh)
	told := map[netip.Addr]int32{}
	for _, addr := range slices.Concat(w.Always, w.Leased) {
		if _, asked := fresh[addr]; asked && a.refused[addr].why != nil {
			errs = append(errs, fmt.Errorf("add address %s: %w", addr, a.refused[addr].why))
			continue
		}
		leased := slices.Contains(w.Leased, addr)
		if leased && !a.mayHoldLocked(addr) {
			continue
		}
		place, ok := at.of(addr, leased)
		if !ok {
			errs = append(errs, fmt.Errorf("add address %s: no interface has an address of this node", addr))
			continue
		}
		if !has[addr] {
			var until time.Time
			if leased {
				until = a.until
			}
			if err := (extra{addr: addr, index: place}).add(s, socket.Create|socket.Excl, until); err != nil {
				errs = append(errs, err)
				continue
			}
			writes++
			a.present = true
		}
		if !has[addr] || a.announced[addr] != place {
			if err := a.announce(place, addr); err != nil {
				errs = append(errs, fmt.Errorf("tell the neighbours of address %s: %w", addr, err))
				continue
			}
		}
		told[addr] = place
	}
	a.announced = told
	if err := errors.Join(errs...); err != nil {
		return writes, err
	}
	a.extended = a.until
	return writes, nil
}

// announce tells the neighbours of an address, now and once more after announceInterval, if this node still has it then.
func (a *Addresses) announce(place int32, addr netip.Addr) error {
	n, err := newAnnouncement(place, addr)
	if err != nil {
		return err
	}
	if err := n.send(); err != nil {
		return errors.Join(err, n.close())
	}
	time.AfterFunc(announceInterval, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.announced[addr] == place && (slices.Contains(a.wanted.Always, addr) || a.mayHoldLocked(addr)) {
			_ = n.send() // the first one went out
		}
		_ = n.close()
	})
	return nil
}

// mayHoldLocked reports whether Hold allows an address for one more second at least, which is the unit of the kernel.
func (a *Addresses) mayHoldLocked(addr netip.Addr) bool {
	return slices.Contains(a.held, addr) && time.Until(a.until) >= time.Second
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
		local, peer := false, netip.Addr{}
		for d.Next() {
			switch d.Type() {
			case unix.IFA_LOCAL:
				e.addr, local = netip.Addr{}, true
				e.addr, _ = netip.AddrFromSlice(d.Bytes())
			case unix.IFA_ADDRESS:
				if peer, _ = netip.AddrFromSlice(d.Bytes()); !local {
					e.addr = peer
				}
			case unix.IFA_CACHEINFO:
				// struct ifa_cacheinfo: the second word is the valid time.
				if b := d.Bytes(); len(b) >= 8 {
					e.limited = binary.NativeEndian.Uint32(b[4:]) != math.MaxUint32
				}
			case ifaProto:
				e.ours, e.copied = d.Uint8() == Protocol, d.Uint8() == CopyProtocol
			}
		}
		if err := d.Err(); err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		e.link, _ = peer.Prefix(int(m.Data[1]))
		all = append(all, e)
	}
	return all, nil
}

// add adds the address, or changes the time until which it is valid. The zero time means without end.
func (e extra) add(s *socket.Conn, flags socket.HeaderFlags, until time.Time) error {
	enc := e.encoder()
	enc.Uint8(ifaProto, Protocol)
	if e.addr.Is6() {
		// Without a check for duplicates the address works at once: a node takes it over from another one.
		enc.Uint32(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE)
	}
	valid := uint32(math.MaxUint32)
	if !until.IsZero() {
		valid = uint32(max(0, time.Until(until)) / time.Second)
	}
	if e.addr.Is6() || !until.IsZero() {
		// struct ifa_cacheinfo: never preferred (RFC 6724, section 5, rule 3), valid for that time.
		info := make([]byte, 16)
		binary.NativeEndian.PutUint32(info[4:], valid)
		enc.Bytes(unix.IFA_CACHEINFO, info)
	}
	if err := e.write(s, unix.RTM_NEWADDR, flags, enc); err != nil {
		return fmt.Errorf("add address %s: %w", e.addr, err)
	}
	return nil
}

// remove removes the address. It may be gone already.
func (e extra) remove(s *socket.Conn) error {
	if err := e.write(s, unix.RTM_DELADDR, 0, e.encoder()); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove address %s: %w", e.addr, err)
	}
	return nil
}

func (e extra) encoder() *socket.AttributeEncoder {
	enc := socket.NewAttributeEncoder()
	enc.Bytes(unix.IFA_LOCAL, e.addr.AsSlice())
	enc.Bytes(unix.IFA_ADDRESS, e.addr.AsSlice())
	return enc
}

func (e extra) write(s *socket.Conn, kind socket.HeaderType, flags socket.HeaderFlags, enc *socket.AttributeEncoder) error {
	data := make([]byte, unix.SizeofIfAddrmsg)
	data[0], data[1] = unix.AF_INET, 32
	if e.addr.Is6() {
		data[0], data[1] = unix.AF_INET6, 128
	}
	binary.NativeEndian.PutUint32(data[4:], uint32(e.index))
	attributes, err := enc.Encode()
	if err != nil {
		return err
	}
	_, err = s.Execute(socket.Message{
		Header: socket.Header{Type: kind, Flags: socket.Request | socket.Acknowledge | flags}, Data: append(data, attributes...),
	})
	return err
}
