package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
)

// capture watches the host's side of a pod's interface: packets that leave there have
// reached the pod.
type capture struct {
	fd     int
	packet trace.Packet
}

func openCapture(n Node, name string, p trace.Packet) (*capture, error) {
	c := &capture{fd: -1, packet: p}
	err := n.do(func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		all := int(uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)) // in network order
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all); err != nil {
			return err
		}
		return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: link.Index})
	})
	if err != nil {
		c.close()
		return nil, fmt.Errorf("%s: watch interface %s: %w", n.Name, name, err)
	}
	return c, nil
}

func (c *capture) close() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
	}
}

// came reports whether the packet comes before the time is over.
func (c *capture) came(ctx context.Context, wait time.Duration) (bool, error) {
	buffer := make([]byte, 1<<16)
	for deadline := time.Now().Add(wait); ; {
		n, from, err := unix.Recvfrom(c.fd, buffer, 0)
		link, isLink := from.(*unix.SockaddrLinklayer)
		switch {
		case errors.Is(err, unix.EAGAIN):
			left := time.Until(deadline)
			if left <= 0 || ctx.Err() != nil {
				return false, ctx.Err()
			}
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}, int(min(left, 100*time.Millisecond).Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
				return false, err
			}
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false, fmt.Errorf("read from the pod's interface: %w", err)
		case isLink && link.Pkttype == unix.PACKET_OUTGOING && isOurs(buffer[:n], c.packet):
			return true, nil
		}
	}
}
