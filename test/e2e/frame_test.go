package e2e

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// Frames are put together by hand, so that a test can lie in any field.

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
)

// linkMAC returns the MAC address of an interface of a namespace.
func linkMAC(t *testing.T, ns *namespace.Namespace, name string) (mac net.HardwareAddr) {
	t.Helper()
	err := ns.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err == nil {
			mac = link.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

func ethernet(src, dst net.HardwareAddr, kind uint16, payload []byte) []byte {
	b := append(append([]byte{}, dst...), src...)
	return append(binary.BigEndian.AppendUint16(b, kind), payload...)
}

// senderPort is the source port of udpPacket.
const senderPort = 40000

// udpPacket returns an IP packet of either family with a UDP datagram.
func udpPacket(src, dst netip.Addr, port uint16, payload string) (kind uint16, packet []byte) {
	return udpDatagram(netip.AddrPortFrom(src, senderPort), netip.AddrPortFrom(dst, port), payload)
}

// udpDatagram is udpPacket with a source port.
func udpDatagram(src, dst netip.AddrPort, payload string) (kind uint16, packet []byte) {
	udp := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(udp[0:], src.Port())
	binary.BigEndian.PutUint16(udp[2:], dst.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(payload)))
	udp = append(udp, payload...)
	return ip(src.Addr(), dst.Addr(), unix.IPPROTO_UDP, 64, udp, 6)
}

// tcpSegment returns an IP packet of either family with a TCP segment.
func tcpSegment(src, dst netip.AddrPort, flags byte, payload string) (kind uint16, packet []byte) {
	return tcpSegmentAt(src, dst, 1000, 2000, flags, payload)
}

// tcpSegmentAt is tcpSegment with a sequence number and an acknowledged one.
func tcpSegmentAt(src, dst netip.AddrPort, sequence, acknowledged uint32, flags byte, payload string) (kind uint16, packet []byte) {
	tcp := make([]byte, 20, 20+len(payload))
	binary.BigEndian.PutUint16(tcp[0:], src.Port())
	binary.BigEndian.PutUint16(tcp[2:], dst.Port())
	binary.BigEndian.PutUint32(tcp[4:], sequence)
	binary.BigEndian.PutUint32(tcp[8:], acknowledged)
	tcp[12], tcp[13] = 5<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], 1000) // window
	tcp = append(tcp, payload...)
	return ip(src.Addr(), dst.Addr(), unix.IPPROTO_TCP, 64, tcp, 16)
}

// ip wraps a payload with its checksum field at the given offset.
func ip(src, dst netip.Addr, proto, ttl byte, payload []byte, checksumAt int) (kind uint16, packet []byte) {
	pseudo := append(append([]byte{}, src.AsSlice()...), dst.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(payload)))
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(proto))
	binary.BigEndian.PutUint16(payload[checksumAt:], internetChecksum(append(pseudo, payload...)))
	if src.Is4() {
		h := make([]byte, 20)
		h[0] = 0x45
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
		h[8], h[9] = ttl, proto
		copy(h[12:], src.AsSlice())
		copy(h[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(h[10:], internetChecksum(h))
		return etherIPv4, append(h, payload...)
	}
	h := make([]byte, 40)
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	h[6], h[7] = proto, ttl
	copy(h[8:], src.AsSlice())
	copy(h[24:], dst.AsSlice())
	return etherIPv6, append(h, payload...)
}

func internetChecksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// arpReply claims that an address is at a MAC.
func arpReply(claimed netip.Addr, at net.HardwareAddr, to netip.Addr, toMAC net.HardwareAddr) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 2}
	b = append(append(b, at...), claimed.AsSlice()...)
	return append(append(b, toMAC...), to.AsSlice()...)
}

// neighbourAdvertisement claims that an address is at a MAC (RFC 4861, 4.4).
func neighbourAdvertisement(src, dst, claimed netip.Addr, at net.HardwareAddr) []byte {
	b := []byte{136, 0, 0, 0, 0x20, 0, 0, 0} // override
	b = append(b, claimed.AsSlice()...)
	b = append(append(b, 2, 1), at...)
	_, packet := ip(src, dst, unix.IPPROTO_ICMPV6, 255, b, 2)
	return packet
}

// geneve wraps a frame (RFC 8926) with network identifier 0.
func geneve(frame []byte) []byte {
	return append([]byte{0, 0, 0x65, 0x58, 0, 0, 0, 0}, frame...)
}

// wire is a packet socket on an interface of a namespace.
type wire struct {
	t  *testing.T
	fd int
}

func openWire(t *testing.T, ns *namespace.Namespace, name string) *wire {
	t.Helper()
	w := &wire{t: t}
	err := ns.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		all := int(htons(unix.ETH_P_ALL))
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		return unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: link.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(w.fd) })
	return w
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if _, err := unix.Write(w.fd, frame); err != nil {
		w.t.Fatal(err)
	}
}

// next returns the next frame that came in, nil after the deadline.
func (w *wire) next(deadline time.Time) []byte {
	w.t.Helper()
	buffer := make([]byte, 4096)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return nil
		}
		tv := unix.NsecToTimeval(left.Nanoseconds())
		if err := unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			w.t.Fatal(err)
		}
		n, from, err := unix.Recvfrom(w.fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			w.t.Fatal(err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		return buffer[:n]
	}
}
