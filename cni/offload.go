package cni

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value of <linux/ethtool.h>.
type ethtoolValue struct {
	cmd  uint32
	data uint32
}

// ifreqPointer is struct ifreq of <linux/if.h> with ifr_data in use.
type ifreqPointer struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// DisableTxChecksum turns off transmit checksum offload of an interface in the
// network namespace of the calling thread. The userspace datapath reads frames
// from packet sockets and passes them on as they are: with offload on, their
// checksums are never filled in and the receiver drops them.
func DisableTxChecksum(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("turn off tx checksum offload of %s: %w", name, err)
	}
	defer unix.Close(fd)
	value := ethtoolValue{cmd: unix.ETHTOOL_STXCSUM}
	request := ifreqPointer{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return fmt.Errorf("turn off tx checksum offload of %s: %w", name, errno)
	}
	return nil
}
