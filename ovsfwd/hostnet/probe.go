package hostnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	socket "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

const (
	// probes is how often a probe asks for an address, probeEvery the time in between.
	probes     = 3
	probeEvery = 120 * time.Millisecond
)

// foreign returns why some of these addresses are not free, at the interfaces where they are to be: one is the next hop of a route, or another host
// answers for it. It asks as a host does that is about to take an address: by ARP probes (RFC 5227, section 2.1.1), or neighbour solicitations
// without a source (RFC 4862, section 5.4.2).
func foreign(s *socket.Conn, at map[netip.Addr]int32) (map[netip.Addr]error, error) {
	taken := map[netip.Addr]error{}
	asked := map[segment][]netip.Addr{}
	for _, f := range model.Families() {
		routes, err := listHops(s, f)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			for _, via := range r.via {
				if _, wanted := at[via]; wanted {
					taken[via] = fmt.Errorf("%s is the next hop of a route of this node, so this node does not take it", via)
				}
			}
		}
	}
	for addr, index := range at {
		if taken[addr] == nil {
			k := segment{index, model.FamilyOf(addr)}
			asked[k] = append(asked[k], addr)
		}
	}
	var all []*probe
	defer func() {
		for _, p := range all {
			_ = unix.Close(p.fd)
		}
	}()
	for k, addrs := range asked {
		p, err := newProbe(k, addrs)
		if err != nil {
			return taken, err
		}
		if p != nil {
			all = append(all, p)
		}
	}
	for range probes {
		for _, p := range all {
			if err := p.ask(); err != nil {
				return taken, err
			}
		}
		for deadline := time.Now().Add(probeEvery); ; {
			fds := waiting(all)
			left := time.Until(deadline)
			if len(fds) == 0 || left <= 0 {
				break
			}
			if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
				return taken, fmt.Errorf("wait for answers: %w", err)
			}
			for _, p := range all {
				p.receive()
			}
		}
	}
	for _, p := range all {
		for addr, mac := range p.macs {
			taken[addr] = fmt.Errorf("another host, with the MAC address %s, has %s, so this node does not take it", mac, addr)
		}
	}
	return taken, nil
}

// waiting returns the sockets of probes with addresses that nobody has answered for.
func waiting(all []*probe) (fds []unix.PollFd) {
	for _, p := range all {
		if len(p.macs) < len(p.addrs) {
			fds = append(fds, unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
		}
	}
	return fds
}

// segment is a family at an interface.
type segment struct {
	index  int32
	family model.Family
}

// probe asks for addresses at a segment.
type probe struct {
	segment
	addrs    []netip.Addr
	link     *net.Interface
	protocol uint16
	fd       int
	buffer   []byte
	// macs are the MAC addresses that other hosts have answered with.
	macs map[netip.Addr]net.HardwareAddr
}

// newProbe returns nil for an interface that has no neighbours with MAC addresses.
func newProbe(at segment, addrs []netip.Addr) (*probe, error) {
	link, err := net.InterfaceByIndex(int(at.index))
	if err != nil {
		return nil, err
	}
	if len(link.HardwareAddr) != 6 || link.Flags&net.FlagUp == 0 {
		return nil, nil
	}
	p := &probe{segment: at, addrs: addrs, link: link, protocol: bigEndian16(unix.ETH_P_ARP), buffer: make([]byte, 2048), macs: map[netip.Addr]net.HardwareAddr{}}
	if at.family == model.IPv6 {
		p.protocol = bigEndian16(unix.ETH_P_IPV6)
	}
	if p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(p.protocol)); err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: p.protocol, Ifindex: link.Index}); err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket at %s: %w", link.Name, err), unix.Close(p.fd))
	}
	return p, nil
}

func (p *probe) ask() error {
	for _, a := range p.addrs {
		packet, to := arpProbe(p.link.HardwareAddr, a), [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		if p.family == model.IPv6 {
			packet, to = solicitation(a)
		}
		if err := unix.Sendto(p.fd, packet, 0, &unix.SockaddrLinklayer{Protocol: p.protocol, Ifindex: p.link.Index, Halen: 6, Addr: to}); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("ask for address %s at %s: %w", a, p.link.Name, err)
		}
	}
	return nil
}

// receive takes the packets that are there.
func (p *probe) receive() {
	for {
		n, from, err := unix.Recvfrom(p.fd, p.buffer, unix.MSG_DONTWAIT)
		if err != nil {
			return
		}
		sender, is := from.(*unix.SockaddrLinklayer)
		if !is || sender.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		a, mac := answerOf(p.buffer[:n], p.family)
		if mac == nil {
			mac = slices.Clone(sender.Addr[:6])
		}
		if slices.Contains(p.addrs, a) && !bytes.Equal(mac, p.link.HardwareAddr) {
			p.macs[a] = mac
		}
	}
}

// answerOf returns the address that a packet claims, with the MAC address if the packet has it.
func answerOf(b []byte, f model.Family) (netip.Addr, net.HardwareAddr) {
	if f == model.IPv4 {
		// ARP for Ethernet and IPv4: 8 bytes, then MAC and address of the sender. Requests of a host count too.
		if len(b) < 28 || !bytes.Equal(b[:6], []byte{0, 1, 8, 0, 6, 4}) {
			return netip.Addr{}, nil
		}
		a, _ := netip.AddrFromSlice(b[14:18])
		return a, slices.Clone(b[8:14])
	}
	const advertisement = 136
	if len(b) < 40+24 || b[6] != unix.IPPROTO_ICMPV6 || b[7] != 255 || b[40] != advertisement {
		return netip.Addr{}, nil
	}
	a, _ := netip.AddrFromSlice(b[48:64])
	if options := b[64:]; len(options) >= 8 && options[0] == 2 && options[1] == 1 {
		return a, slices.Clone(options[2:8])
	}
	return a, nil
}

// arpProbe returns an ARP request without a sender's address.
func arpProbe(mac net.HardwareAddr, a netip.Addr) []byte {
	p := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, mac...)
	p = append(p, make([]byte, 4+6)...)
	return append(p, a.AsSlice()...)
}

// solicitation returns a neighbour solicitation without a source, and the MAC address of those that listen for it.
func solicitation(a netip.Addr) (packet []byte, to [8]byte) {
	target := a.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], target[13:])
	message := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, target[:]...)
	pseudo := append(make([]byte, 16), group[:]...)
	pseudo = append(pseudo, 0, 0, 0, byte(len(message)), 0, 0, 0, unix.IPPROTO_ICMPV6)
	sum := uint32(0)
	for _, part := range [][]byte{pseudo, message} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum))
	packet = append([]byte{0x60, 0, 0, 0, 0, byte(len(message)), unix.IPPROTO_ICMPV6, 255}, make([]byte, 16)...)
	packet = append(append(packet, group[:]...), message...)
	return packet, [8]byte{0x33, 0x33, 0xff, target[13], target[14], target[15]}
}
