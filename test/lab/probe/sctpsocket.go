package probe

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// sctpSockets reports whether the kernel has SCTP sockets of an address's family.
// A kernel with SCTP answers every INIT without a matching socket by an ABORT, so raw
// sockets do not work there. On other kernels only raw sockets work.
func sctpSockets(ns *namespace.Namespace, addr netip.Addr) bool {
	return ns.Do(func() error {
		fd, err := sctpSocket(addr)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}) == nil
}

// sctpSocket opens a socket that is used as one of TCP (RFC 6458, section 4).
func sctpSocket(addr netip.Addr) (int, error) {
	return unix.Socket(domain(addr), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
}

// listenSCTP is called in the namespace to listen in.
func listenSCTP(at netip.AddrPort) (net.Listener, error) {
	fd, err := sctpSocket(at.Addr())
	if err != nil {
		return nil, fmt.Errorf("sctp socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "sctp")
	defer file.Close()
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return nil, fmt.Errorf("bind sctp socket: %w", err)
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("listen on sctp socket: %w", err)
	}
	// Package net takes every stream socket for one of TCP; all that it does with
	// this one is the same.
	return net.FileListener(file)
}
