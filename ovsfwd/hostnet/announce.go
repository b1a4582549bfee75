package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// announceInterval is the time between the two announcements of an address (RFC 5227, section 1.1: ANNOUNCE_NUM, ANNOUNCE_INTERVAL). A
// neighbour may miss the first one: Linux keeps an entry that has changed within the last second (neigh/default/locktime).
const announceInterval = 2 * time.Second

// announcement tells the neighbours at an interface that an address is this node's: a gratuitous ARP request (RFC 5227,
// section 3), or an unsolicited neighbour advertisement (RFC 4861, section 7.2.6).
type announcement struct {
	socket int // -1 if there is nobody to tell
	to     unix.Sockaddr
	packet []byte
}

// newAnnouncement is to be closed.
func newAnnouncement(index int32, addr netip.Addr) (announcement, error) {
	link, err := net.InterfaceByIndex(int(index))
	switch {
	case err != nil:
		return announcement{}, err
	case len(link.HardwareAddr) != 6:
		return announcement{socket: -1}, nil // it has no neighbours with MAC addresses
	case addr.Is4():
		return announcementARP(link, addr)
	}
	return announcementND(link, addr)
}

func (a announcement) send() error {
	if a.socket < 0 {
		return nil
	}
	return unix.Sendto(a.socket, a.packet, 0, a.to)
}

func (a announcement) close() error {
	if a.socket < 0 {
		return nil
	}
	return unix.Close(a.socket)
}

func announcementARP(link *net.Interface, addr netip.Addr) (announcement, error) {
	const ethernet, ipv4, request = 1, 0x0800, 1
	p := binary.BigEndian.AppendUint16(nil, ethernet)
	p = binary.BigEndian.AppendUint16(p, ipv4)
	p = append(p, 6, 4)
	p = binary.BigEndian.AppendUint16(p, request)
	p = append(append(p, link.HardwareAddr...), addr.AsSlice()...)
	p = append(append(p, make([]byte, 6)...), addr.AsSlice()...)
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return announcement{}, fmt.Errorf("packet socket: %w", err)
	}
	to := &unix.SockaddrLinklayer{Protocol: bigEndian16(unix.ETH_P_ARP), Ifindex: link.Index, Halen: 6, Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	return announcement{s, to, p}, nil
}

// bigEndian16 returns the value whose bytes in memory are those of n in network order.
func bigEndian16(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

func announcementND(link *net.Interface, addr netip.Addr) (announcement, error) {
	const advertisement, router, override, targetLinkLayer = 136, 0x80, 0x20, 2
	p := append([]byte{advertisement, 0, 0, 0, router | override, 0, 0, 0}, addr.AsSlice()...)
	p = append(append(p, targetLinkLayer, 1), link.HardwareAddr...)
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return announcement{}, fmt.Errorf("socket for ICMPv6: %w", err)
	}
	// Receivers drop advertisements with another hop limit (RFC 4861, section 7.1.2). The kernel adds the checksum.
	err = errors.Join(
		unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
		unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, link.Index),
		unix.Bind(s, &unix.SockaddrInet6{Addr: addr.As16(), ZoneId: uint32(link.Index)}),
	)
	if err != nil {
		return announcement{}, errors.Join(err, unix.Close(s))
	}
	return announcement{s, &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(link.Index)}, p}, nil
}
