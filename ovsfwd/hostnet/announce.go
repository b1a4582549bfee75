package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// announce tells the neighbours at an interface that an address is this node's: by a gratuitous ARP request (RFC 5227,
// section 3), or by an unsolicited neighbour advertisement (RFC 4861, section 7.2.6).
func announce(index int32, addr netip.Addr) error {
	link, err := net.InterfaceByIndex(int(index))
	if err != nil {
		return err
	}
	if len(link.HardwareAddr) != 6 {
		return nil // it has no neighbours with MAC addresses
	}
	if addr.Is4() {
		return announceARP(link, addr)
	}
	return announceND(link, addr)
}

func announceARP(link *net.Interface, addr netip.Addr) (err error) {
	const ethernet, ipv4, request = 1, 0x0800, 1
	p := binary.BigEndian.AppendUint16(nil, ethernet)
	p = binary.BigEndian.AppendUint16(p, ipv4)
	p = append(p, 6, 4)
	p = binary.BigEndian.AppendUint16(p, request)
	p = append(append(p, link.HardwareAddr...), addr.AsSlice()...)
	p = append(append(p, make([]byte, 6)...), addr.AsSlice()...)
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(s)) }()
	to := &unix.SockaddrLinklayer{Protocol: bigEndian16(unix.ETH_P_ARP), Ifindex: link.Index, Halen: 6, Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	return unix.Sendto(s, p, 0, to)
}

// bigEndian16 returns the value whose bytes in memory are those of n in network order.
func bigEndian16(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

func announceND(link *net.Interface, addr netip.Addr) (err error) {
	const advertisement, router, override, targetLinkLayer = 136, 0x80, 0x20, 2
	p := append([]byte{advertisement, 0, 0, 0, router | override, 0, 0, 0}, addr.AsSlice()...)
	p = append(append(p, targetLinkLayer, 1), link.HardwareAddr...)
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return fmt.Errorf("socket for ICMPv6: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(s)) }()
	// Receivers drop advertisements with another hop limit (RFC 4861, section 7.1.2). The kernel adds the checksum.
	if err := unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, link.Index); err != nil {
		return err
	}
	if err := unix.Bind(s, &unix.SockaddrInet6{Addr: addr.As16(), ZoneId: uint32(link.Index)}); err != nil {
		return err
	}
	return unix.Sendto(s, p, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(link.Index)})
}
