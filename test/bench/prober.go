package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

const (
	// probeInterval is the time between two probes.
	probeInterval = time.Millisecond
	// Every packet has a source and a destination port that no other one has had
	// for minutes: a connection that connection tracking knows is not judged.
	firstProbeSource, probeSources = 1024, 64512
	// Probes go to the first ports, their followers to the others.
	firstProbeTarget, firstFollowTarget, probeTargets = 20000, 20100, 4
	// receiveTimeout bounds how late the end is noticed.
	receiveTimeout = 100 * time.Millisecond
)

// prober sends UDP packets from a pod to another one, each the first of a
// connection, and records the arrivals. There are no replies: a packet measures the way
// in one direction, and nothing waits for it.
//
// A follower goes after every probe: a packet that is always allowed and takes the same
// way. If it arrives and the probe does not, the probe was denied. If neither arrives,
// both were lost or are still on the way, as they often are on a busy
// machine.
type prober struct {
	sender, receiver int
	target           netip.Addr
	// listeners keep the server's kernel from refusing the packets.
	listeners []*net.UDPConn

	mu     sync.Mutex
	probes []probe
	// offset is the number of the first probe that is kept.
	offset uint64
	failed error

	stop context.CancelFunc
	done sync.WaitGroup
}

// probe is a packet, and the one that follows it.
type probe struct {
	sent              time.Time
	arrived, followed bool
}

// decided reports whether the probe's result is known.
func (p probe) decided() bool { return p.arrived || p.followed }

// startProber starts to send, beginning with the probe of that number. The address
// is the server's.
func startProber(ctx context.Context, client, server *namespace.Namespace, address netip.Addr, first uint64) (_ *prober, err error) {
	p := &prober{sender: -1, receiver: -1, target: address, offset: first}
	ctx, p.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("prober: %w", err), p.close())
		}
	}()
	// The kernel makes the IP header; the prober makes the rest.
	if err := client.Do(func() (err error) {
		p.sender, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
		return err
	}); err != nil {
		return nil, err
	}
	if err := server.Do(p.listen); err != nil {
		return nil, err
	}
	p.done.Go(func() { p.receive(ctx) })
	p.done.Go(func() { p.send(ctx, first) })
	return p, nil
}

// listen opens the sockets of the server. One receives all packets, in the order in
// which they come.
func (p *prober) listen() (err error) {
	if p.receiver, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP); err != nil {
		return err
	}
	timeout := unix.NsecToTimeval(int64(receiveTimeout))
	if err := unix.SetsockoptTimeval(p.receiver, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(p.receiver, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20); err != nil {
		return err
	}
	for _, first := range []int{firstProbeTarget, firstFollowTarget} {
		for i := range probeTargets {
			conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.target, uint16(first+i))))
			if err != nil {
				return err
			}
			p.listeners = append(p.listeners, conn)
		}
	}
	return nil
}

func (p *prober) close() error {
	p.stop()
	p.done.Wait()
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	for _, fd := range []int{p.sender, p.receiver} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// send sends until the end, at a steady pace. It does not make up for lost time.
func (p *prober) send(ctx context.Context, first uint64) {
	// A locked thread wakes up sooner than one goroutine of many.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	to := &unix.SockaddrInet4{Addr: p.target.As4()}
	for n := first; ctx.Err() == nil; n++ {
		begin := time.Now()
		p.mu.Lock()
		p.probes = append(p.probes, probe{sent: begin})
		p.mu.Unlock()
		for _, target := range []int{firstProbeTarget, firstFollowTarget} {
			if err := unix.Sendto(p.sender, probePacket(n, target), 0, to); err != nil {
				p.fail(fmt.Errorf("send a probe: %w", err))
				return
			}
		}
		if left := probeInterval - time.Since(begin); left > 0 {
			wait := unix.NsecToTimespec(int64(left))
			// Interrupted, it sends a little early.
			_ = unix.Nanosleep(&wait, nil)
		}
	}
}

// The sizes of a packet: the header of UDP (RFC 768), and the number of the probe.
const udpHeader, probeSize = 8, 16

// probePacket is a packet of the n-th probe: a header without checksum, and the
// number.
func probePacket(n uint64, target int) []byte {
	b := make([]byte, probeSize)
	binary.BigEndian.PutUint16(b[0:], uint16(firstProbeSource+n%probeSources))
	binary.BigEndian.PutUint16(b[2:], uint16(uint64(target)+n/probeSources%probeTargets))
	binary.BigEndian.PutUint16(b[4:], probeSize)
	binary.BigEndian.PutUint64(b[udpHeader:], n)
	return b
}

// receive records arrivals, with their IP header, until the end.
func (p *prober) receive(ctx context.Context) {
	b := make([]byte, 128)
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(p.receiver, b, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			p.fail(fmt.Errorf("receive probes: %w", err))
			return
		case n > 0:
			p.note(b[:n])
		}
	}
}

// note records a packet, and ignores foreign ones.
func (p *prober) note(packet []byte) {
	header := int(packet[0]&0x0f) * 4
	if len(packet) != header+probeSize {
		return
	}
	packet = packet[header:]
	target, n := binary.BigEndian.Uint16(packet[2:]), binary.BigEndian.Uint64(packet[udpHeader:])
	p.mu.Lock()
	defer p.mu.Unlock()
	i := n - p.offset
	if n < p.offset || i >= uint64(len(p.probes)) {
		return
	}
	if target >= firstFollowTarget {
		p.probes[i].followed = true
	} else {
		p.probes[i].arrived = true
	}
}

func (p *prober) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = errors.Join(p.failed, err)
}

// next returns the number of the next probe.
func (p *prober) next() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offset + uint64(len(p.probes))
}

// forget drops the probes that were sent before a moment.
func (p *prober) forget(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.probes) && p.probes[n].sent.Before(before) {
		n++
	}
	p.probes, p.offset = append([]probe(nil), p.probes[n:]...), p.offset+uint64(n)
}

// seen returns the known results of the probes that were sent in an interval. A
// single probe that did not arrive, between two that did, was lost.
func (p *prober) seen(from, to time.Time) ([]probe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []probe
	for _, x := range p.probes {
		if x.decided() && !x.sent.Before(from) && x.sent.Before(to) {
			out = append(out, x)
		}
	}
	for i := 1; i+1 < len(out); i++ {
		if out[i-1].arrived && out[i+1].arrived {
			out[i].arrived = true
		}
	}
	return out, p.failed
}
