package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// Arrival is a TCP or UDP packet that reached an interface.
type Arrival struct {
	// At is when the kernel received it.
	At       time.Time
	Protocol string
	From, To netip.AddrPort
	// Flags are those of a TCP segment (RFC 9293, section 3.1).
	Flags uint8
}

func (a Arrival) String() string {
	text := fmt.Sprintf("%s %s %s -> %s", a.At.Format("15:04:05.000"), a.Protocol, a.From, a.To)
	if a.Protocol != "tcp" {
		return text
	}
	for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK"} {
		if a.Flags&(1<<i) != 0 {
			text += " " + name
		}
	}
	return text
}

// Arrivals counts the TCP and UDP packets of some senders that reach an interface, whether
// or not a program takes them.
type Arrivals struct {
	fd      int
	senders []netip.Addr
	done    sync.WaitGroup

	mu    sync.Mutex
	all   []Arrival
	fault error
}

// arrivalsBuffer holds a burst while this process does not get a processor.
const arrivalsBuffer = 16 << 20

// Watch counts packets on an interface of a namespace until Close.
func Watch(in *namespace.Namespace, name string, senders ...netip.Addr) (*Arrivals, error) {
	a := &Arrivals{fd: -1, senders: senders}
	filter, err := filterOf(senders)
	if err != nil {
		return nil, err
	}
	err = in.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		// No packet comes before the filter is there: protocol 0 receives none.
		if a.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptSockFprog(a.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
			unix.SetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, arrivalsBuffer),
			unix.SetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.Bind(a.fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: link.Index}),
		)
	})
	if err != nil {
		if a.fd >= 0 {
			unix.Close(a.fd)
		}
		return nil, fmt.Errorf("packet socket on %s of %s: %w", name, in.Name(), err)
	}
	a.done.Go(a.read)
	return a, nil
}

func bigEndian(v uint16) uint16 { return v<<8 | v>>8 }

// filterOf returns a program that passes the packets of the senders. It compares the last
// four bytes of IPv6 addresses; note compares all of them.
func filterOf(senders []netip.Addr) ([]unix.SockFilter, error) {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: 12, Size: 2}}
	for _, family := range []struct {
		kind  uint32
		is6   bool
		field uint32
	}{{unix.ETH_P_IP, false, 14 + 12}, {unix.ETH_P_IPV6, true, 14 + 8 + 12}} {
		var last []uint32
		for _, s := range senders {
			if s.Is6() == family.is6 {
				bytes := s.AsSlice()
				last = append(last, binary.BigEndian.Uint32(bytes[len(bytes)-4:]))
			}
		}
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: family.kind, SkipTrue: uint8(2 + 2*len(last))},
			bpf.LoadAbsolute{Off: family.field, Size: 4})
		for _, v := range last {
			program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v, SkipTrue: 1}, bpf.RetConstant{Val: 128})
		}
		program = append(program, bpf.RetConstant{Val: 0})
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: 0}))
	if err != nil {
		return nil, fmt.Errorf("filter of packets: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return filter, nil
}

func (a *Arrivals) read() {
	for {
		ready := []unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLIN}}
		_, err := unix.Poll(ready, 100) // ms
		a.mu.Lock()
		if err != nil && !errors.Is(err, unix.EINTR) {
			a.fail(err)
		}
		a.take()
		ended := a.fault != nil
		a.mu.Unlock()
		if ended {
			return
		}
	}
}

// take notes all packets that the kernel holds for the socket. It needs the lock.
func (a *Arrivals) take() {
	frame, control := make([]byte, 256), make([]byte, 128)
	for {
		n, length, _, _, err := unix.Recvmsg(a.fd, frame, control, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			a.fail(err)
			return
		default:
			a.note(frame[:n], control[:length])
		}
	}
}

var errClosed = errors.New("closed")

// fail notes the first fault. It needs the lock.
func (a *Arrivals) fail(err error) {
	if a.fault == nil {
		a.fault = err
	}
}

// note keeps a frame if one of the senders has sent it. It needs the lock.
func (a *Arrivals) note(frame, control []byte) {
	from, to, protocol, payload, ok := addresses(frame)
	if !ok || !slices.Contains(a.senders, from) || len(payload) < 4 {
		return
	}
	name := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[protocol]
	if name == "" {
		return
	}
	arrival := Arrival{
		At: received(control), Protocol: name,
		From: netip.AddrPortFrom(from, binary.BigEndian.Uint16(payload)),
		To:   netip.AddrPortFrom(to, binary.BigEndian.Uint16(payload[2:])),
	}
	if protocol == unix.IPPROTO_TCP && len(payload) > 13 {
		arrival.Flags = payload[13]
	}
	a.all = append(a.all, arrival)
}

// addresses reads the headers of an Ethernet frame with an IP packet without options.
func addresses(frame []byte) (from, to netip.Addr, protocol byte, payload []byte, ok bool) {
	if len(frame) < 14+20 {
		return
	}
	packet := frame[14:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_IP:
		header := int(packet[0]&15) * 4
		if len(packet) < header {
			return
		}
		return netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20])), packet[9], packet[header:], true
	case unix.ETH_P_IPV6:
		if len(packet) < 40 {
			return
		}
		return netip.AddrFrom16([16]byte(packet[8:24])), netip.AddrFrom16([16]byte(packet[24:40])), packet[6], packet[40:], true
	}
	return
}

// received returns the kernel's timestamp of a packet, and now without one.
func received(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

// Since returns the packets that arrived after a time, up to now: also those that the kernel has received and nobody
// has read yet. It fails if packets may have been missed.
func (a *Arrivals) Since(start time.Time) ([]Arrival, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.take()
	stats, err := unix.GetsockoptTpacketStats(a.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && stats.Drops > 0 {
		err = fmt.Errorf("the packet socket lost %d packets", stats.Drops)
	}
	var since []Arrival
	for _, arrival := range a.all {
		if arrival.At.After(start) {
			since = append(since, arrival)
		}
	}
	return since, errors.Join(a.fault, err)
}

// Close ends the count.
func (a *Arrivals) Close() error {
	a.mu.Lock()
	a.fail(errClosed)
	a.mu.Unlock()
	a.done.Wait()
	return unix.Close(a.fd)
}
