package property

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// port is one of a site's links as seen from the other side: packets are
// put in and taken out raw.
type port struct {
	fd    int
	index int
	// peer is the MAC address that a router listens to.
	peer net.HardwareAddr
}

func openPort(t *testing.T, name string) *port {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: l.Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	return &port{fd: fd, index: l.Attrs().Index}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// receive returns the next frame that has come, or nil if there is none.
func (p *port) receive() ([]byte, error) {
	for {
		frame := make([]byte, 2048)
		n, from, err := unix.Recvfrom(p.fd, frame, 0)
		switch ll, ok := from.(*unix.SockaddrLinklayer); {
		case err == unix.EAGAIN:
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("receive: %w", err)
		case ok && ll.Pkttype == unix.PACKET_OUTGOING || n < etherLen:
		default:
			return frame[:n], nil
		}
	}
}

// await returns when one of the ports has a frame, or none came in time.
func await(wait time.Duration, ports ...*port) error {
	ready := make([]unix.PollFd, len(ports))
	for i, p := range ports {
		ready[i] = unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN}
	}
	if _, err := unix.Poll(ready, int(wait.Milliseconds())+1); err != nil && err != unix.EINTR {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}

func (p *port) send(frame []byte) error {
	to := &unix.SockaddrLinklayer{Ifindex: p.index, Protocol: htons(unix.ETH_P_ALL)}
	if err := unix.Sendto(p.fd, frame, 0, to); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// discard empties the receive queue.
func (p *port) discard() {
	buf := make([]byte, 1)
	for {
		if _, _, err := unix.Recvfrom(p.fd, buf, 0); err != nil {
			return
		}
	}
}

// ethernet makes a frame of an IP packet.
func ethernet(dst, src net.HardwareAddr, ip []byte) []byte {
	kind := uint16(etherIPv4)
	if ip[0]>>4 == 6 {
		kind = etherIPv6
	}
	frame := append(append([]byte{}, dst...), src...)
	return append(append(frame, byte(kind>>8), byte(kind)), ip...)
}
