package pipeline

import (
	"bytes"
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// wire is a raw socket on one interface in a network namespace. It keeps all
// frames that come in.
type wire struct {
	t  *testing.T
	fd int

	mu     sync.Mutex
	frames [][]byte
}

func htons(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// openWire opens a raw socket and starts to receive.
func openWire(t *testing.T, namespace, name string) *wire {
	t.Helper()
	w := &wire{t: t}
	inNamespace(t, namespace, func() {
		iface, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL))); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: iface.Index}); err != nil {
			t.Fatal(err)
		}
	})
	// A timeout, so that the receiver ends with the test.
	if err := unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		w.receive(stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		_ = unix.Close(w.fd)
	})
	return w
}

func (w *wire) receive(stop <-chan struct{}) {
	b := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(w.fd, b, 0)
		if err != nil {
			continue
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		w.mu.Lock()
		w.frames = append(w.frames, bytes.Clone(b[:n]))
		w.mu.Unlock()
	}
}

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if _, err := unix.Write(w.fd, frame); err != nil {
		w.t.Fatal(err)
	}
}

// got returns the first frame that came in and equals the given one, apart
// from the destination MAC address and padding.
func (w *wire) got(frame []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.frames {
		if len(f) >= len(frame) && bytes.Equal(f[6:len(frame)], frame[6:]) {
			return f
		}
	}
	return nil
}

// count returns the number of frames that came in.
func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.frames)
}

// await waits for a frame.
func (w *wire) await(frame []byte) []byte {
	w.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if f := w.got(frame); f != nil {
			return f
		}
	}
	return nil
}

// inNamespace runs f on a thread of its own in a network namespace.
func inNamespace(t *testing.T, namespace string, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()
	ns, err := netns.GetFromName(namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	if err := netns.Set(ns); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(old); err != nil {
			t.Error(err)
		}
	}()
	f()
}
