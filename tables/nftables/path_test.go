package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

// path is a sender, a router that carries the table, and a receiver, each in
// a namespace of its own. The sender has every address of 10.1/16 and
// fd01::/64, the receiver every address of 10.2/16 and fd02::/64.
type path struct {
	sender, router, receiver namespace
	sockets                  map[socketKey]int
	arrived                  map[uint32]bool
	probes                   uint32
}

type socketKey struct {
	receives bool
	source   netip.Addr // of sending sockets
	protocol model.Protocol
	family   model.Family
}

func newPath(t *testing.T) *path {
	t.Helper()
	p := &path{
		sender: newNamespace(t), router: newNamespace(t), receiver: newNamespace(t),
		sockets: map[socketKey]int{}, arrived: map[uint32]bool{},
	}
	p.router.run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
	for i, end := range []namespace{p.sender, p.receiver} {
		n := i + 1
		link := fmt.Sprintf("r%d", n)
		command(t, "", "ip", "-n", end.name, "link", "add", "eth0", "type", "veth", "peer", "name", link, "netns", p.router.name)
		end.run(t, "sh", "-ec", fmt.Sprintf(`sysctl -qw net.ipv6.ip_nonlocal_bind=1
			ip link set lo up; ip link set eth0 up
			ip addr add 192.168.%[1]d.2/24 dev eth0; ip addr add fd00:%[1]d::2/64 dev eth0 nodad
			ip route add default via 192.168.%[1]d.1; ip -6 route add default via fd00:%[1]d::1
			ip route add local 10.%[1]d.0.0/16 dev lo; ip -6 route add local fd0%[1]d::/64 dev lo`, n))
		p.router.run(t, "sh", "-ec", fmt.Sprintf(`ip link set %[2]s up
			ip addr add 192.168.%[1]d.1/24 dev %[2]s; ip addr add fd00:%[1]d::1/64 dev %[2]s nodad
			ip route add 10.%[1]d.0.0/16 via 192.168.%[1]d.2; ip -6 route add fd0%[1]d::/64 via fd00:%[1]d::2`, n, link))
	}
	t.Cleanup(func() {
		for _, fd := range p.sockets {
			_ = unix.Close(fd)
		}
	})
	return p
}

// socket returns a raw socket, opened in the namespace when first asked for.
func (p *path) socket(t *testing.T, key socketKey) int {
	t.Helper()
	if fd, ok := p.sockets[key]; ok {
		return fd
	}
	ns := p.sender
	if key.receives {
		ns = p.receiver
	}
	type result struct {
		fd  int
		err error
	}
	done := make(chan result)
	go func() {
		// Not unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
			done <- result{-1, err}
			return
		}
		domain := unix.AF_INET
		if key.family == model.IPv6 {
			domain = unix.AF_INET6
		}
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(key.protocol))
		if err == nil && key.source.IsValid() {
			err = unix.Bind(fd, sockaddr(key.source))
		}
		done <- result{fd, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	p.sockets[key] = r.fd
	return r.fd
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}

// The probe's number stands behind what could be the transport header.
const (
	numberAt  = 20
	probeSize = 24
)

// send sends a packet that is a transport header in its first four bytes (the
// ports) and carries the number of the probe, which it returns.
func (p *path) send(t *testing.T, protocol model.Protocol, src, dst netip.Addr, port uint16) uint32 {
	t.Helper()
	p.probes++
	packet := make([]byte, probeSize)
	binary.BigEndian.PutUint16(packet, 40000)
	binary.BigEndian.PutUint16(packet[2:], port)
	binary.BigEndian.PutUint16(packet[4:], probeSize) // UDP: the length
	binary.BigEndian.PutUint32(packet[numberAt:], p.probes)
	f := model.FamilyOf(dst)
	p.socket(t, socketKey{receives: true, protocol: protocol, family: f})
	fd := p.socket(t, socketKey{source: src, protocol: protocol, family: f})
	if err := unix.Sendto(fd, packet, 0, sockaddr(dst)); err != nil {
		t.Fatal(err)
	}
	return p.probes
}

// collect notes the probes that have arrived.
func (p *path) collect(t *testing.T) {
	t.Helper()
	buffer := make([]byte, 2048)
	for key, fd := range p.sockets {
		if !key.receives {
			continue
		}
		for {
			n, _, err := unix.Recvfrom(fd, buffer, 0)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			packet := buffer[:n]
			if key.family == model.IPv4 {
				packet = packet[4*int(packet[0]&0xf):]
			}
			if len(packet) >= probeSize {
				p.arrived[binary.BigEndian.Uint32(packet[numberAt:])] = true
			}
		}
	}
}

// sentinel is a UDP port that the tests let through.
const sentinel = 7

// passes reports whether a packet arrives. It is followed by one that always
// does, on the same way: when that is there, the first has come or was dropped.
func (p *path) passes(t *testing.T, protocol model.Protocol, src, dst netip.Addr, port uint16) bool {
	t.Helper()
	probe := p.send(t, protocol, src, dst, port)
	first, second := addr("10.1.0.2"), addr("10.2.0.2")
	if dst.Is6() {
		first, second = addr("fd01::2"), addr("fd02::2")
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		last := p.send(t, model.UDP, first, second, sentinel)
		for range 100 {
			if p.collect(t); p.arrived[last] {
				return p.arrived[probe]
			}
			time.Sleep(time.Millisecond)
		}
	}
	t.Fatal("the sentinel does not arrive")
	return false
}
