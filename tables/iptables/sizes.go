package iptables

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
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

// tableSizes are the sizes of all tables in the kernel.
type tableSizes struct {
	sockets map[model.Family]int
	// last are those after our last write or read, and ours the number of our entries
	// then; known says that there are any.
	last  [places]info
	ours  [places]int
	known bool
	// before are the places where a read of this Apply has compared the sizes with its
	// result.
	before placeSet
	// absent are the tables that the kernel does not have. Each question for one may
	// start modprobe, so they are left out until the next Apply.
	absent placeSet
	// err ends the watch: the sizes cannot be read.
	err error
	// shared is when a change of tables with rules of others was last reported.
	shared time.Time
}

// due reports whether a change of the place's table may be reported now.
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

// beforeRead reads the sizes of a family's tables before they are read in full.
func (s *tableSizes) beforeRead(f model.Family) {
	for _, p := range placesOf(f) {
		s.before.remove(p)
	}
	now, err := s.read()
	if err != nil {
		return // so does the read at the end, which reports it
	}
	for _, p := range placesOf(f) {
		s.last[p] = now[p]
	}
}

// afterRead records our entries in the tables of a family, by a full read.
func (s *tableSizes) afterRead(f model.Family, ours [places]int) {
	for _, p := range placesOf(f) {
		// A read or a write creates a table that is not there.
		if s.last[p].entries != 0 {
			s.ours[p] = ours[p]
			s.before.add(p)
		}
	}
}

// afterWrite reads the sizes at the end of an Apply, which has read the places in read in
// full. It reports whether other programs may have changed something.
func (s *tableSizes) afterWrite(read placeSet, ours [places]int) (foreign bool) {
	now, err := s.read()
	if err != nil {
		s.known, s.err = false, err
		return true
	}
	for p := range places {
		others, before := int(now[p].entries)-ours[p], int(s.last[p].entries)-s.ours[p]
		if (read.has(p) || s.known && s.last[p].entries != 0) && others != before {
			if !s.due(p) {
				continue // a later look finds the difference
			}
			foreign = true
		}
		s.last[p], s.ours[p] = now[p], ours[p]
	}
	s.known = true
	return foreign
}

// openSizes opens the sockets by which the kernel reports the sizes.
func openSizes(netns int, families []model.Family) (*tableSizes, error) {
	s := &tableSizes{sockets: map[model.Family]int{}}
	var err error
	if netns == 0 {
		err = s.open(families)
	} else {
		err = namespace.In(netns, func() error { return s.open(families) })
	}
	if err != nil {
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
		level := levelOf(f)
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

// levelOf returns the level of a family's socket options.
func levelOf(f model.Family) int {
	if f == model.IPv6 {
		return unix.SOL_IPV6
	}
	return unix.SOL_IP
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
