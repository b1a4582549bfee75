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

	"github.com/felixlike/felixlike/lab/namespace"
)

const (
	// probeInterval is the time between two probes.
	probeInterval = time.Millisecond
	// Every probe has a source and a destination port that no other one has had
	// for minutes: a connection that connection tracking knows is not judged.
	firstProbeSource, probeSources = 1024, 64512
	firstProbeTarget, probeTargets = 20000, 4
)

// prober sends one UDP packet after the other from a pod to another one, each
// the first of a connection of its own, and notes which arrive. Nothing is
// answered: what one packet takes is the time on the way, and nothing waits
// for it.
type prober struct {
	socket  int
	target  netip.Addr
	servers []*net.UDPConn

	mu     sync.Mutex
	probes []probe
	// offset is the number of the first probe that is kept.
	offset uint64
	failed error

	stop context.CancelFunc
	done sync.WaitGroup
}

// probe is one packet.
type probe struct {
	sent    time.Time
	arrived bool
}

// startProber starts to send, beginning with the probe of that number. The address
// is the server's.
func startProber(ctx context.Context, client, server *namespace.Namespace, address netip.Addr, first uint64) (*prober, error) {
	p := &prober{target: address, offset: first}
	err := client.Do(func() (err error) {
		// The kernel makes the IP header, we make the rest.
		p.socket, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("socket of the prober: %w", err)
	}
	ctx, p.stop = context.WithCancel(ctx)
	for i := range probeTargets {
		at := netip.AddrPortFrom(address, uint16(firstProbeTarget+i))
		var conn *net.UDPConn
		err := server.Do(func() (err error) {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("server of probes: %w", err), p.close())
		}
		p.servers = append(p.servers, conn)
		p.done.Go(func() { p.receive(conn) })
	}
	p.done.Go(func() { p.send(ctx, first) })
	return p, nil
}

func (p *prober) close() error {
	p.stop()
	var errs []error
	for _, s := range p.servers {
		errs = append(errs, s.Close())
	}
	p.done.Wait()
	return errors.Join(append(errs, unix.Close(p.socket))...)
}

// send sends until the end, at a steady pace: what is late is not made up for.
func (p *prober) send(ctx context.Context, first uint64) {
	// A thread of its own wakes up sooner than a goroutine of many.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	to := &unix.SockaddrInet4{Addr: p.target.As4()}
	for n := first; ctx.Err() == nil; n++ {
		begin := time.Now()
		p.mu.Lock()
		p.probes = append(p.probes, probe{sent: begin})
		p.mu.Unlock()
		if err := unix.Sendto(p.socket, probePacket(n), 0, to); err != nil {
			p.fail(fmt.Errorf("send a probe: %w", err))
			return
		}
		if left := probeInterval - time.Since(begin); left > 0 {
			wait := unix.NsecToTimespec(int64(left))
			// Interrupted, it sends a little early.
			_ = unix.Nanosleep(&wait, nil)
		}
	}
}

// probePacket is the n-th packet: a UDP header (RFC 768) without checksum, and
// its number.
func probePacket(n uint64) []byte {
	const header, size = 8, 16
	b := make([]byte, size)
	binary.BigEndian.PutUint16(b[0:], uint16(firstProbeSource+n%probeSources))
	binary.BigEndian.PutUint16(b[2:], uint16(firstProbeTarget+n/probeSources%probeTargets))
	binary.BigEndian.PutUint16(b[4:], size)
	binary.BigEndian.PutUint64(b[header:], n)
	return b
}

func (p *prober) receive(conn *net.UDPConn) {
	b := make([]byte, 64)
	for {
		n, err := conn.Read(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			p.fail(fmt.Errorf("receive probes: %w", err))
			return
		case n == 8:
			p.arrived(binary.BigEndian.Uint64(b))
		}
	}
}

func (p *prober) arrived(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := n - p.offset; n >= p.offset && i < uint64(len(p.probes)) {
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

// forget drops what was sent before a moment.
func (p *prober) forget(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.probes) && p.probes[n].sent.Before(before) {
		n++
	}
	p.probes, p.offset = append([]probe(nil), p.probes[n:]...), p.offset+uint64(n)
}

// seen returns what has been sent from one moment to another. A packet alone that
// is missing between two that have arrived was lost: it counts as arrived.
func (p *prober) seen(from, to time.Time) ([]probe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []probe
	for i, x := range p.probes {
		if x.sent.Before(from) || !x.sent.Before(to) {
			continue
		}
		if !x.arrived && i > 0 && i+1 < len(p.probes) {
			x.arrived = p.probes[i-1].arrived && p.probes[i+1].arrived
		}
		out = append(out, x)
	}
	return out, p.failed
}
