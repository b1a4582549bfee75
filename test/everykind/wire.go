package everykind

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Wire is a packet socket at an interface. It records the frames that come in with a number.
type Wire struct {
	fd      int
	buffer  []byte
	arrived map[uint32][]byte
}

// Open opens a wire at an interface of the caller's network namespace.
func Open(name string) (*Wire, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}),
	)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &Wire{fd: fd, buffer: make([]byte, 1<<16), arrived: map[uint32][]byte{}}, nil
}

// Close closes the socket.
func (w *Wire) Close() error { return unix.Close(w.fd) }

// drained is the number of frames after which Send reads what arrived, so that no buffer overflows.
const drained = 64

// Send sends the frames, and reads meanwhile what arrives at the others.
func (w *Wire) Send(frames [][]byte, others ...*Wire) error {
	for i, f := range frames {
		for {
			_, err := unix.Write(w.fd, f)
			if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN) {
				time.Sleep(time.Millisecond) // the queue of the interface is full
				continue
			}
			if err != nil {
				return fmt.Errorf("send frame %d of %d bytes: %w", i, len(f), err)
			}
			break
		}
		if i%drained == 0 {
			for _, o := range others {
				if err := o.read(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// read records what has arrived.
func (w *Wire) read() error {
	for {
		n, from, err := unix.Recvfrom(w.fd, w.buffer, 0)
		switch ll, ok := from.(*unix.SockaddrLinklayer); {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case ok && ll.Pkttype == unix.PACKET_OUTGOING:
		default:
			if number, ok := Number(w.buffer[:n]); ok {
				w.arrived[number] = append([]byte{}, w.buffer[:n]...)
			}
		}
	}
}

// giveUp bounds the wait for a frame that has to arrive.
const giveUp = 30 * time.Second

// Await sends the frame by out, again and again, until it arrives here. Frames on the same way that were sent before it have arrived then,
// if they ever do.
func (w *Wire) Await(out *Wire, number uint32, frame []byte) error {
	for deadline := time.Now().Add(giveUp); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err := out.Send([][]byte{frame}, w); err != nil {
			return err
		}
		if err := w.read(); err != nil {
			return err
		}
		if w.arrived[number] != nil {
			return nil
		}
	}
	return fmt.Errorf("frame %d, which nothing denies, did not arrive within %s", number, giveUp)
}

// Take returns the frames that have arrived, by their numbers, and forgets them.
func (w *Wire) Take() (map[uint32][]byte, error) {
	err := w.read()
	all := w.arrived
	w.arrived = map[uint32][]byte{}
	return all, err
}
