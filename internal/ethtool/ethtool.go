// Package ethtool turns offloads of interfaces on and off, in the network
// namespace of the calling thread. It knows no more of them than their names in
// the kernel; it is tested on a veth pair.
package ethtool

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Feature is an offload.
type Feature uint8

// The offloads that a userspace switch has to do with: it reads frames from
// packet sockets and passes them on as they are.
const (
	// TxChecksum leaves the checksums of sent packets to the other end of the interface. A
	// switch there does not fill them in.
	TxChecksum Feature = iota
	// GRO merges the segments of a stream into one packet, larger than any that the
	// switch takes.
	GRO
)

// commands returns those that ask for a feature, and set it.
func (f Feature) commands() (get, set uint32) {
	if f == GRO {
		return unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO
	}
	return unix.ETHTOOL_GTXCSUM, unix.ETHTOOL_STXCSUM
}

// String returns the name that ethtool(8) has for the feature.
func (f Feature) String() string {
	if f == GRO {
		return "gro"
	}
	return "tx"
}

// Get reports whether a feature of an interface is on.
func Get(name string, f Feature) (bool, error) {
	get, _ := f.commands()
	on, err := call(name, get, 0)
	if err != nil {
		return false, fmt.Errorf("ask for offload %s of %s: %w", f, name, err)
	}
	return on != 0, nil
}

// Set turns a feature of an interface on or off.
func Set(name string, f Feature, on bool) error {
	_, set := f.commands()
	value, state := uint32(0), "off"
	if on {
		value, state = 1, "on"
	}
	if _, err := call(name, set, value); err != nil {
		return fmt.Errorf("turn offload %s of %s %s: %w", f, name, state, err)
	}
	return nil
}

// value is struct ethtool_value of <linux/ethtool.h>.
type value struct {
	cmd  uint32
	data uint32
}

// request is struct ifreq of <linux/if.h> with ifr_data in use.
type request struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

func call(name string, command, data uint32) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	v := value{cmd: command, data: data}
	r := request{data: unsafe.Pointer(&v)}
	copy(r.name[:unix.IFNAMSIZ-1], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r))); errno != 0 {
		return 0, errno
	}
	return v.data, nil
}
