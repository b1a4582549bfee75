package iptables

import (
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

const (
	// lookEvery is the time between two looks at the sizes of the tables. A look
	// takes some 10 us.
	lookEvery = 250 * time.Millisecond
	// sharedEvery bounds reads because of tables that others change all the time,
	// as a proxy for Services does. Policy is in none of them.
	sharedEvery = 10 * time.Second
)

// info is struct ipt_getinfo of linux/netfilter_ipv4/ip_tables.h, that of IPv6 is
// the same.
type info struct {
	name             [32]byte
	validHooks       uint32
	entry, underflow [5]uint32
	entries, size    uint32
}

// sockoptGetInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO.
const sockoptGetInfo = 64

// tableSizes are the sizes of all tables, as the kernel tells them.
type tableSizes struct {
	sockets map[model.Family]int
	// last are those after our last write or read, and held what of them was ours;
	// known tells that there are any.
	last  [places]info
	held  [places]int
	known bool
	// before are the places whose sizes a read of this Apply has compared with its result.
	before placeSet
	// absent are the tables that the kernel does not have. Each question for one may
	// start modprobe, so they are left out until the next Apply.
	absent placeSet
	// err ends the watch: the sizes cannot be told.
	err error
	// shared is when a change of tables which others share was last told.
	shared time.Time
}

// watchLegacy looks at the sizes of the tables: the legacy variant has no
// notifications.
func (t *Table) watchLegacy(ctx context.Context, changed func()) error {
	s, err := openSizes(t.options.NetNS, t.families)
	if err != nil {
		return err
	}
	w := &t.watcher
	w.mu.Lock()
	w.sizes = s
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sizes = nil
		s.close()
	}()
	w.missed(changed)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		heard, err := w.look()
		if err != nil {
			return err
		}
		if heard {
			w.hear(changed)
		}
	}
}

// look compares the sizes with those of before, unless an Apply changes them.
func (w *watcher) look() (heard bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sizes.err != nil {
		return false, w.sizes.err
	}
	if w.applying || !w.sizes.known || w.heard {
		return w.heard, nil
	}
	now, err := w.sizes.read()
	if err != nil {
		return false, err
	}
	for p := range places {
		w.heard = w.heard || now[p] != w.sizes.last[p] && w.sizes.due(p)
	}
	return w.heard, nil
}

// due reports whether a change of the place's table may be told now.
func (s *tableSizes) due(p place) bool {
	if k := p.table(); k == tableRaw || k == tableMangle {
		return true
	}
	if time.Since(s.shared) < sharedEvery {
		return false
	}
	s.shared = time.Now()
	return true
}

// beforeRead notes the sizes of a family's tables before they are read in full. What
// others change from then on is found.
func (w *watcher) beforeRead(f model.Family) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sizes
	if s == nil {
		return
	}
	for _, p := range placesOf(f) {
		s.before.remove(p)
	}
	now, err := s.read()
	if err != nil {
		return // so does the read at the end, which tells of it
	}
	for _, p := range placesOf(f) {
		s.last[p] = now[p]
	}
}

// afterRead notes what of the tables was ours, by the read.
func (w *watcher) afterRead(t *Table, f model.Family) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sizes == nil {
		return
	}
	held := t.held()
	for _, p := range placesOf(f) {
		// A read or a write creates a table that is not there.
		if w.sizes.last[p].entries != 0 {
			w.sizes.held[p] = held[p]
			w.sizes.before.add(p)
		}
	}
}

// end notes how an Apply has ended. What the tables hold of others must not have
// changed by what we wrote, nor since a read in this Apply began.
func (w *watcher) end(t *Table, r tables.Result, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applying, w.applied = false, w.applied || ok
	w.rest(time.Now())
	s := w.sizes
	if s == nil {
		return
	}
	read := s.before
	s.before, s.absent = 0, 0
	switch {
	case !ok:
		// What was written is not known. The next Apply reads; it comes without a notice,
		// after a pause.
		s.known, w.heard, w.told = false, true, true
		return
	case s.known && !r.FullRead && r.Messages == 0:
		return
	}
	now, err := s.read()
	if err != nil {
		s.known, w.heard, s.err = false, true, err
		return
	}
	held := t.held()
	for p := range places {
		others, before := int(now[p].entries)-held[p], int(s.last[p].entries)-s.held[p]
		if (read.has(p) || s.known && s.last[p].entries != 0) && others != before {
			if !s.due(p) {
				continue // a later look finds the difference
			}
			w.heard = true
		}
		s.last[p], s.held[p] = now[p], held[p]
	}
	s.known = true
}

// openSizes opens the sockets by which the kernel tells the sizes.
func openSizes(netns int, families []model.Family) (*tableSizes, error) {
	s := &tableSizes{sockets: map[model.Family]int{}}
	done := make(chan error)
	go func() {
		// A thread that was elsewhere is not given back: it ends with the goroutine.
		runtime.LockOSThread()
		if netns == 0 {
			defer runtime.UnlockOSThread()
		} else if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		done <- s.open(families)
	}()
	if err := <-done; err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *tableSizes) open(families []model.Family) error {
	for _, f := range families {
		domain := unix.AF_INET
		if f == model.IPv6 {
			domain = unix.AF_INET6
		}
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return fmt.Errorf("watch the tables of IPv%s: %w", f, err)
		}
		s.sockets[f] = fd
	}
	return nil
}

func (s *tableSizes) close() {
	for _, fd := range s.sockets {
		_ = unix.Close(fd)
	}
}

// read asks for the sizes of all tables.
func (s *tableSizes) read() (all [places]info, err error) {
	for f, fd := range s.sockets {
		level := unix.SOL_IP
		if f == model.IPv6 {
			level = unix.SOL_IPV6
		}
		for _, p := range placesOf(f) {
			if s.absent.has(p) {
				continue
			}
			var code unix.Errno
			all[p], code = sizeOf(fd, level, p.table().String())
			// A table that the kernel does not have is none of ours.
			if code == unix.ENOENT {
				s.absent.add(p)
			} else if code != 0 {
				return all, fmt.Errorf("ask for the size of %s: %w", p, code)
			}
		}
	}
	return all, nil
}

// sizeOf asks for the size of a table. That of a table that the kernel does not have is
// the zero info, as of one that is not asked for.
func sizeOf(fd, level int, table string) (info, unix.Errno) {
	var i info
	copy(i.name[:], table)
	size := uint32(unsafe.Sizeof(i))
	_, _, code := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), sockoptGetInfo,
		uintptr(unsafe.Pointer(&i)), uintptr(unsafe.Pointer(&size)), 0)
	if code != 0 {
		return info{}, code
	}
	return i, 0
}
