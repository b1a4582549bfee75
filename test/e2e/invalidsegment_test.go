package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// Segments of TCP outside its windows are in no state of conntrack, so NAT does not translate them back. A client that gets one from the
// endpoint's own address has no such connection, and its reset would end the one that it has.
const invalidPort = 9000

// Flags of TCP.
const (
	flagFIN = 0x01
	flagPSH = 0x08
	flagACK = 0x10
)

// Queues of TCP_REPAIR (include/uapi/linux/tcp.h).
const (
	receiveQueue = 1
	sendQueue    = 2
)

// TestInvalidSegmentsResetNothing: through Services, from pods, nodes and outside, a server sends segments above and below the window, and its
// end twice. The client's connection goes on in both directions, and nothing comes to a pod from the endpoint's own address.
func TestInvalidSegmentsResetNothing(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.OpenFlow} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Backend: backend, ServiceProxy: config.ServiceProxyFull})
			set(t, l, state(t, threeNodes))
			objects := strings.ReplaceAll(serviceObjects(l), "ports: [{port: 80}]", fmt.Sprintf("ports: [{port: %d}]", invalidPort))
			if err := os.WriteFile(filepath.Join(l.Manifests(), "services.yaml"), []byte(objects), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := l.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, f := range model.Families() {
				at := map[string]*net.TCPListener{}
				for _, end := range []string{"x/a", "x/c", "ip:" + stranger} {
					at[end] = listen(t, l, end, f)
				}
				for _, w := range open(
					"b -> a", "c -> a", "a -> a", "b -> node1:c", "b -> ext", "node1 -> a", "node1 -> c", "node2 -> a", "node1 -> ext", "node1 -> node1:c",
					outside+" -> node1:a", outside+" -> node1!a", outside+" -> node2:a", outside+" -> node1:ext",
				) {
					if err := invalidSegments(t, l, w, f, at[endpointOf(w)]); err != nil {
						t.Errorf("%s -> %s over IPv%s: %v", w.from, w.to, f, err)
					}
				}
			}
		})
	}
}

// endpointOf returns the end of a probe that a way leads to.
func endpointOf(w way) string {
	service := w.to[strings.LastIndexAny(w.to, ":!")+1:]
	if service == "ext" {
		return "ip:" + stranger
	}
	return "x/" + service
}

// listen listens on the end of a probe.
func listen(t *testing.T, l *lab.Lab, end string, f model.Family) (listener *net.TCPListener) {
	t.Helper()
	ns, address, err := l.Host(end, f)
	if err == nil {
		err = ns.Do(func() (err error) {
			listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, invalidPort)))
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// invalidSegments opens a connection and has the server send segments that conntrack holds invalid.
func invalidSegments(t *testing.T, l *lab.Lab, w way, f model.Family, server *net.TCPListener) error {
	t.Helper()
	var seen *wire
	isPod := !strings.HasPrefix(w.from, "node") && !strings.Contains(w.from, ".") && w.from != w.to
	if isPod {
		seen = openWire(t, l.Pod(pod(w.from)).Namespace(), "eth0")
	}
	client, err := w.open(l, f, patience)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := server.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	conn, err := server.AcceptTCP()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := errors.Join(client.SetDeadline(time.Now().Add(patience)), conn.SetDeadline(time.Now().Add(patience))); err != nil {
		return err
	}
	say := func(what string, from io.Writer, to io.Reader) error {
		if _, err := from.Write([]byte("hello")); err != nil {
			return fmt.Errorf("%s: write: %w", what, err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(to, got); err != nil || string(got) != "hello" {
			return fmt.Errorf("%s: read %q: %w", what, got, err)
		}
		return nil
	}
	if err := errors.Join(say("the first request", client, conn), say("the first answer", conn, client)); err != nil {
		return err
	}
	sent, received, err := sequences(conn)
	if err != nil {
		return err
	}
	ns, _, err := l.Host(endpointOf(w), f)
	if err != nil {
		return err
	}
	send := func(sequence uint32, flags byte, payload string) error {
		return sendSegment(ns, conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort(), sequence, received, flags, payload)
	}
	// A reset of the client would come to the server before the client's next data.
	for _, away := range []int32{1 << 24, -100000, 1 << 30, -1 << 29} {
		if err := send(sent+uint32(away), flagPSH|flagACK, "boom!!!"); err != nil {
			return err
		}
		what := fmt.Sprintf("after a segment %d from the window", away)
		if err := errors.Join(say(what+", answer", conn, client), say(what+", request", client, conn)); err != nil {
			return err
		}
		sent, received = sent+5, received+5
	}
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	for range 3 {
		if err := send(sent, flagFIN|flagACK, ""); err != nil {
			return err
		}
	}
	if n, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the server has closed its side: the client read %d bytes, %w", n, err)
	}
	if err := send(sent+1<<24, flagFIN|flagACK, ""); err != nil {
		return err
	}
	if err := say("after the server's end came again", client, conn); err != nil {
		return err
	}
	for end := time.Now().Add(50 * time.Millisecond); isPod; {
		frame := seen.next(end)
		if frame == nil {
			break
		}
		if s := sourcePort(frame); s == invalidPort {
			return fmt.Errorf("the client got a segment of the endpoint that is not translated: %x", frame)
		}
	}
	return nil
}

// sourcePort returns the source port of a TCP segment in a frame, or 0.
func sourcePort(frame []byte) uint16 {
	if len(frame) < 54 {
		return 0
	}
	kind, header := binary.BigEndian.Uint16(frame[12:]), 34
	proto := frame[23]
	if kind == etherIPv6 {
		proto, header = frame[20], 54
	}
	if kind != etherIPv4 && kind != etherIPv6 || proto != unix.IPPROTO_TCP || len(frame) < header+2 {
		return 0
	}
	return binary.BigEndian.Uint16(frame[header:])
}

// sequences returns the numbers of the next byte that a socket sends, and of the next that it receives.
func sequences(conn *net.TCPConn) (sent, received uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	err = errors.Join(raw.Control(func(fd uintptr) {
		queue := func(number int) uint32 {
			if err == nil {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, number)
			}
			next := 0
			if err == nil {
				next, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
			}
			return uint32(next)
		}
		if err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_ON); err != nil {
			return
		}
		received, sent = queue(receiveQueue), queue(sendQueue)
		err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP))
	}), err)
	return sent, received, err
}

// sendSegment sends a segment from a namespace, past its sockets.
func sendSegment(ns *namespace.Namespace, src, dst netip.AddrPort, sequence, acknowledged uint32, flags byte, payload string) error {
	_, packet := tcpSegmentAt(src, dst, sequence, acknowledged, flags, payload)
	return ns.Do(func() error {
		var to unix.Sockaddr = &unix.SockaddrInet6{Addr: dst.Addr().As16()}
		domain := unix.AF_INET6
		if dst.Addr().Is4() {
			domain, to = unix.AF_INET, &unix.SockaddrInet4{Addr: dst.Addr().As4()}
		}
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		return errors.Join(unix.Sendto(fd, packet, 0, to), unix.Close(fd))
	})
}
