package property

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/policy/oracle"
)

// port is one of a router's links as seen from the other side: packets are
// put in and taken out raw.
type port struct {
	fd    int
	index int
	peer  net.HardwareAddr
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

// probe is one packet on its way in. With want, it is expected to come out.
type probe struct {
	id      uint16
	in      *port
	payload []byte
	want    bool
}

// A packet that should have come out and did not is sent again this many times:
// a queue that overflows on a busy machine must not look like policy, and policy
// drops it every time.
const retransmissions = 3

// sentinel is a packet that no policy concerns.
func sentinel(id uint16) flow {
	return flow{id: id, Packet: oracle.Packet{
		Source: netip.MustParseAddr("198.51.100.200"), Destination: netip.MustParseAddr("198.51.100.201"),
		Protocol: model.UDP, Port: 9,
	}}
}

// forward sends the probes in and returns the ids of those that came out.
func (r *router) forward(probes []probe, newID func() uint16) (map[uint16]bool, error) {
	through := map[uint16]bool{}
	for range 1 + retransmissions {
		if err := r.round(probes, sentinel(newID()), through); err != nil {
			return nil, err
		}
		var missing []probe
		for _, p := range probes {
			if p.want && !through[p.id] {
				missing = append(missing, p)
			}
		}
		if probes = missing; len(probes) == 0 {
			break
		}
	}
	return through, nil
}

const (
	// again is the time after which a sentinel counts as lost and is sent again,
	// giveUp that after which nothing is expected to come out any more.
	again  = 200 * time.Millisecond
	giveUp = time.Minute
)

// round sends the probes, and notes what comes out. It ends when a sentinel that
// was sent after them has come out: veth and forwarding keep the order of packets
// that one processor sends.
func (r *router) round(probes []probe, sentinel flow, through map[uint16]bool) error {
	r.gateway.discard()
	for _, p := range probes {
		if err := p.in.send(p.payload); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(giveUp)
	for time.Now().Before(deadline) {
		if err := r.gateway.send(sentinel.opening()); err != nil {
			return err
		}
		for late := time.Now().Add(again); time.Now().Before(late); {
			id, err := r.gateway.receive(time.Until(late))
			if err != nil {
				return err
			}
			if id == sentinel.id {
				return nil
			}
			through[id] = true
		}
	}
	return fmt.Errorf("%s: no sentinel came out within %s", r.node, giveUp)
}

// receive waits for the next packet and returns its id, or 0 if it is not one of
// ours or none came in time.
func (p *port) receive(wait time.Duration) (uint16, error) {
	ready := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(ready, int(wait.Milliseconds())+1); err != nil && err != unix.EINTR {
		return 0, fmt.Errorf("poll: %w", err)
	}
	frame := make([]byte, 2048)
	n, from, err := unix.Recvfrom(p.fd, frame, 0)
	switch ll, ok := from.(*unix.SockaddrLinklayer); {
	case err == unix.EAGAIN:
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("receive: %w", err)
	case ok && ll.Pkttype == unix.PACKET_OUTGOING || n < 14:
		return 0, nil
	}
	return identity(frame[14:n]), nil
}

func (p *port) send(ip []byte) error {
	kind := uint16(etherIPv4)
	if ip[0]>>4 == 6 {
		kind = etherIPv6
	}
	frame := append(append([]byte{}, p.peer...), 2, 0, 0, 0, 0, 1, byte(kind>>8), byte(kind))
	to := &unix.SockaddrLinklayer{Ifindex: p.index, Protocol: htons(kind)}
	if err := unix.Sendto(p.fd, append(frame, ip...), 0, to); err != nil {
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
