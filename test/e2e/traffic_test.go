package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/lab/namespace"
	"github.com/felixlike/felixlike/model"
)

// synRetries is how long a connection may take to open: the kernel sends a SYN
// again at least after 1, 3 and 7 seconds.
const synRetries = 8 * time.Second

// traffic is what must go on, and what must not get through, while something
// happens to a lab. Streams carry data all the time and lose nothing; new
// connections that are allowed open; those that are denied do not.
type traffic struct {
	lab    *lab.Lab
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu sync.Mutex
	// blocks counts the echoes of streams, pushed what servers pushed, opened the
	// new connections, denied the attempts that got nowhere.
	blocks, pushed, opened, denied int
	slowest                        time.Duration
	faults                         []string
}

// startTraffic starts streams and new connections for each allowed pair of
// pods, and attempts for each denied one, over both families, to port 80.
func startTraffic(t *testing.T, l *lab.Lab, allowed, denied [][2]string) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{lab: l, cancel: cancel}
	t.Cleanup(func() { tr.cancel(); tr.done.Wait() })
	for _, f := range model.Families() {
		for _, p := range allowed {
			from, to := route(l, p, f)
			tr.loop(ctx, fmt.Sprintf("stream %s -> %s IPv%s", p[0], p[1], f), func() error { return tr.stream(ctx, from, to) })
			tr.loop(ctx, fmt.Sprintf("new connection %s -> %s IPv%s", p[0], p[1], f), func() error { return tr.open(from, to) })
		}
		for _, p := range denied {
			from, to := route(l, p, f)
			tr.loop(ctx, fmt.Sprintf("denied connection %s -> %s IPv%s", p[0], p[1], f), func() error { return tr.knock(from, to) })
		}
	}
	return tr
}

func route(l *lab.Lab, pair [2]string, f model.Family) (*namespace.Namespace, netip.AddrPort) {
	return l.Pod(pod(pair[0])).Namespace(), netip.AddrPortFrom(l.Pod(pod(pair[1])).Address(f), 80)
}

// loop repeats work until the end or its first fault. What has begun before the end
// must end well.
func (tr *traffic) loop(ctx context.Context, what string, work func() error) {
	tr.done.Add(1)
	go func() {
		defer tr.done.Done()
		for ctx.Err() == nil {
			if err := work(); err != nil {
				tr.fault(what, err)
				return
			}
		}
	}()
}

// fault notes one, with the time and what is known of a connection that did not
// open.
func (tr *traffic) fault(what string, err error) {
	text := fmt.Sprintf("%s %s: %v%s", time.Now().Format("15:04:05.000"), what, err, whereabouts(tr.lab, err))
	tr.note(func() { tr.faults = append(tr.faults, text) })
}

func (tr *traffic) note(f func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	f()
}

// stop ends the traffic, prints what went on, and fails the test for every
// fault.
func (tr *traffic) stop(t *testing.T) {
	t.Helper()
	tr.cancel()
	tr.done.Wait()
	for _, f := range tr.faults {
		t.Error(f)
	}
	t.Logf("%d blocks echoed on streams, %d numbers pushed, %d new connections (slowest %s), %d denied attempts",
		tr.blocks, tr.pushed, tr.opened, tr.slowest.Round(time.Millisecond), tr.denied)
	if tr.blocks == 0 || tr.opened == 0 || tr.denied == 0 {
		t.Error("a kind of traffic never got going")
	}
}

// connect opens a TCP connection. Only the socket is made on the namespace's
// thread, so that a slow connect does not hold up others.
func connect(from *namespace.Namespace, to netip.AddrPort, timeout time.Duration) (*os.File, error) {
	return connectFrom(from, netip.Addr{}, to, timeout)
}

// connectFrom does so from an address, unless it is the zero Addr.
func connectFrom(from *namespace.Namespace, source netip.Addr, to netip.AddrPort, timeout time.Duration) (*os.File, error) {
	domain := unix.AF_INET
	if to.Addr().Is6() {
		domain = unix.AF_INET6
	}
	fd := -1
	err := from.Do(func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Closing resets: source ports do not run out in TIME_WAIT.
	err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err == nil && source.IsValid() {
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(source, 0)))
	}
	if err == nil {
		err = unix.Connect(fd, sockaddr(to))
	}
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = connected(fd, timeout)
	}
	if err != nil {
		err = unopenedBy(fd, err)
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "tcp"), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// connected waits for a connect that goes on.
func connected(fd int, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(max(time.Until(deadline), 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.ETIMEDOUT
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}

// stream sends numbered blocks over one connection and compares their echoes.
// A stream may stall, but not for as long as it takes to open a connection.
func (tr *traffic) stream(ctx context.Context, from *namespace.Namespace, to netip.AddrPort) error {
	conn, err := connect(from, to, synRetries)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer conn.Close()
	out, in := make([]byte, 2000), make([]byte, 2000)
	for n := 0; ctx.Err() == nil; n++ {
		for i := range out {
			out[i] = byte(n + i)
		}
		if err := conn.SetDeadline(time.Now().Add(synRetries)); err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return fmt.Errorf("after %d blocks: %w", n, err)
		}
		if _, err := io.ReadFull(conn, in); err != nil {
			return fmt.Errorf("after %d blocks: %w", n, err)
		}
		if string(in) != string(out) {
			return fmt.Errorf("block %d came back changed", n)
		}
		tr.note(func() { tr.blocks++ })
		pause(ctx, 5*time.Millisecond)
	}
	return nil
}

// open opens a connection, has a byte echoed, and closes it.
func (tr *traffic) open(from *namespace.Namespace, to netip.AddrPort) error {
	start := time.Now()
	conn, err := connect(from, to, synRetries)
	if err != nil {
		return fmt.Errorf("not open after %s: %w", time.Since(start).Round(time.Millisecond), err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(synRetries)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{'?'}); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return err
	}
	tr.note(func() { tr.opened++; tr.slowest = max(tr.slowest, time.Since(start)) })
	time.Sleep(5 * time.Millisecond) // a rate, not a wait: connections fill conntrack
	return nil
}

// knock tries to open a connection that is denied. Each attempt is one SYN.
func (tr *traffic) knock(from *namespace.Namespace, to netip.AddrPort) error {
	conn, err := connect(from, to, 20*time.Millisecond)
	switch {
	case err == nil:
		return errors.Join(errors.New("got in"), conn.Close())
	case errors.Is(err, unix.ETIMEDOUT):
		tr.note(func() { tr.denied++ })
		return nil
	}
	return err
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
