package tablestest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
)

// Path is a sender, a router that carries the table, and a receiver, each in
// a separate namespace. The sender has every address of 10.1/16 and
// fd01::/64, the receiver every address of 10.2/16 and fd02::/64.
type Path struct {
	Sender, Router, Receiver Namespace
	sockets                  map[socketKey]int
	arrived                  map[uint32]bool
	probes                   uint32
	flooded                  int // packets of a Flood that have arrived
}

type socketKey struct {
	receives bool
	source   netip.Addr // of sending sockets
	protocol model.Protocol
	family   model.Family
}

// NewPath makes a path. The router needs the tools.
func NewPath(t testing.TB, tools ...string) *Path {
	t.Helper()
	p := &Path{
		Sender: NewNamespace(t), Router: NewNamespace(t, tools...), Receiver: NewNamespace(t),
		sockets: map[socketKey]int{}, arrived: map[uint32]bool{},
	}
	p.Router.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
	for i, end := range []Namespace{p.Sender, p.Receiver} {
		n := i + 1
		link := fmt.Sprintf("r%d", n)
		Command(t, "", "ip", "-n", end.Name, "link", "add", "eth0", "type", "veth", "peer", "name", link, "netns", p.Router.Name)
		end.Run(t, "sh", "-ec", fmt.Sprintf(`sysctl -qw net.ipv6.ip_nonlocal_bind=1
			ip link set lo up; ip link set eth0 up
			ip addr add 192.168.%[1]d.2/24 dev eth0; ip addr add fd00:%[1]d::2/64 dev eth0 nodad
			ip route add default via 192.168.%[1]d.1; ip -6 route add default via fd00:%[1]d::1
			ip route add local 10.%[1]d.0.0/16 dev lo; ip -6 route add local fd0%[1]d::/64 dev lo`, n))
		p.Router.Run(t, "sh", "-ec", fmt.Sprintf(`ip link set %[2]s up
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
func (p *Path) socket(t testing.TB, key socketKey) int {
	t.Helper()
	if fd, ok := p.sockets[key]; ok {
		return fd
	}
	ns := p.Sender
	if key.receives {
		ns = p.Receiver
	}
	fd := -1
	err := namespace.In(ns.FD, func() (err error) {
		domain := unix.AF_INET
		if key.family == model.IPv6 {
			domain = unix.AF_INET6
		}
		fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(key.protocol))
		if err == nil && key.source.IsValid() {
			err = unix.Bind(fd, sockaddr(key.source))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p.sockets[key] = fd
	return fd
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}

// ProbeSize is the size of a probe behind the IP header.
const ProbeSize = 24

// numberAt is the offset of a probe's number: behind a transport header of up to 20
// bytes.
const numberAt = 20

// Send sends a packet that is a transport header in its first four bytes (the
// ports) and carries the number of the probe, which it returns.
func (p *Path) Send(t testing.TB, protocol model.Protocol, src, dst netip.Addr, port uint16) uint32 {
	t.Helper()
	p.probes++
	f := model.FamilyOf(dst)
	p.socket(t, socketKey{receives: true, protocol: protocol, family: f})
	fd := p.socket(t, socketKey{source: src, protocol: protocol, family: f})
	if err := unix.Sendto(fd, transport(port, p.probes), 0, sockaddr(dst)); err != nil {
		t.Fatal(err)
	}
	return p.probes
}

// transport returns the bytes behind the IP header of a probe.
func transport(port uint16, number uint32) []byte {
	packet := make([]byte, ProbeSize)
	binary.BigEndian.PutUint16(packet, 40000)
	binary.BigEndian.PutUint16(packet[2:], port)
	binary.BigEndian.PutUint16(packet[4:], ProbeSize) // UDP: the length
	binary.BigEndian.PutUint32(packet[numberAt:], number)
	return packet
}

// collect notes the probes that have arrived.
func (p *Path) collect(t testing.TB) {
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
			if len(packet) < ProbeSize {
				continue
			}
			if number := binary.BigEndian.Uint32(packet[numberAt:]); number > 0 {
				p.arrived[number] = true
			} else {
				p.flooded++
			}
		}
	}
}

// Arrived reports whether the packet of a Send had come when the last Passes
// returned.
func (p *Path) Arrived(number uint32) bool { return p.arrived[number] }

// Sentinel is a UDP port that a Path needs the tables to let through.
const Sentinel = 7

// Passes reports whether a packet arrives. It is followed by one that always
// does, on the same way: when that is there, the first has come or was dropped.
func (p *Path) Passes(t testing.TB, protocol model.Protocol, src, dst netip.Addr, port uint16) bool {
	t.Helper()
	probe := p.Send(t, protocol, src, dst, port)
	first, second := netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.2.0.2")
	if dst.Is6() {
		first, second = netip.MustParseAddr("fd01::2"), netip.MustParseAddr("fd02::2")
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		last := p.Send(t, model.UDP, first, second, Sentinel)
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

// Flood sends packets of UDP without pause until stop is called, which returns
// the numbers of sent and arrived packets. The Path is not used in between.
func (p *Path) Flood(t testing.TB, src, dst netip.Addr, port uint16) (stop func() (sent, arrived int)) {
	t.Helper()
	f := model.FamilyOf(dst)
	p.socket(t, socketKey{receives: true, protocol: model.UDP, family: f})
	fd := p.socket(t, socketKey{source: src, protocol: model.UDP, family: f})
	packet, to := transport(port, 0), sockaddr(dst)
	ended, sent, before := make(chan struct{}), 0, p.flooded
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				if unix.Sendto(fd, packet, 0, to) == nil {
					sent++
				}
			}
		}
	})
	end := sync.OnceFunc(func() {
		close(ended)
		sender.Wait()
	})
	t.Cleanup(end) // before the socket is closed: its descriptor may then be another socket's
	return func() (int, int) {
		end()
		// A later packet has arrived, so the earlier ones have, too.
		p.Passes(t, model.UDP, src, dst, Sentinel)
		return sent, p.flooded - before
	}
}
