// Package sockets lists the sockets of this process's network namespace, and the processes that have them open. It asks the kernel (sock_diag,
// /proc), and is tested with sockets of the test.
package sockets

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Socket is a socket of TCP or UDP.
type Socket struct {
	// Protocol is unix.IPPROTO_TCP or IPPROTO_UDP.
	Protocol uint8
	Local    netip.AddrPort
	// Peer is the zero value if the socket takes packets of anyone.
	Peer       netip.AddrPort
	UID, Inode uint32
}

// Process has a socket open.
type Process struct {
	PID  int
	Name string
}

// The states of a TCP socket that has a connection, or begins one, and of one that listens (include/net/tcp_states.h).
const (
	established = 1
	synSent     = 2
	listening   = 10
)

// List returns the sockets that listen or have a peer, sorted by their addresses.
func List() (all []Socket, err error) {
	var errs []error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		tcp, err := netlink.SocketDiagTCP(family)
		errs = append(errs, err)
		tcp = slices.DeleteFunc(tcp, func(s *netlink.Socket) bool {
			return s.State != established && s.State != synSent && s.State != listening
		})
		udp, err := netlink.SocketDiagUDP(family)
		errs = append(errs, err)
		for protocol, list := range map[uint8][]*netlink.Socket{unix.IPPROTO_TCP: tcp, unix.IPPROTO_UDP: udp} {
			for _, s := range list {
				one := Socket{Protocol: protocol, Local: addrPort(s.ID.Source, s.ID.SourcePort), UID: s.UID, Inode: s.INode}
				if s.ID.DestinationPort != 0 {
					one.Peer = addrPort(s.ID.Destination, s.ID.DestinationPort)
				}
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b Socket) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Local.Port(), b.Local.Port()), a.Local.Compare(b.Local), a.Peer.Compare(b.Peer), cmp.Compare(a.Inode, b.Inode))
	})
	if err := errors.Join(errs...); err != nil {
		return all, fmt.Errorf("list the sockets of this node: %w", err)
	}
	return all, nil
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

// Processes returns a process for each socket that one has open, by inode. It sees those of this process's PID namespace, as far as it has the rights.
func Processes() map[uint32]Process {
	all := map[uint32]Process{}
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is well-formed
	names := map[int]string{}
	for _, path := range descriptors {
		to, err := os.Readlink(path)
		text, is := strings.CutPrefix(to, "socket:[")
		inode, number := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32)
		if err != nil || !is || number != nil {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		name, known := names[pid]
		if !known {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // without one it has ended
			name = strings.TrimSpace(string(text))
			names[pid] = name
		}
		if _, other := all[uint32(inode)]; !other && name != "" {
			all[uint32(inode)] = Process{pid, name}
		}
	}
	return all
}
