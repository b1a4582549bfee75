package e2e

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// TestStreamsThroughServices: packets of established connections through a Service, and resets of
// both kinds, reach the client with the Service's address, on one node and between two. Otherwise
// the client's kernel would not take them. With offload, the bridge translates answers.
func TestStreamsThroughServices(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes))
	near, far := service{number: 1, name: "a", endpoint: "a", port: pushPort}, service{number: 3, name: "c", endpoint: "c", port: pushPort}
	runProxyFor(t, l, proxyModes()["nftables"], []service{near, far})
	for _, s := range []service{near, far} {
		for _, f := range model.Families() {
			server := l.Pod(pod(s.endpoint))
			to := netip.AddrPortFrom(s.address(f), servicePort)
			// No server runs yet.
			if conn, err := traffic.Connect(l.Pod(pod("b")).Namespace(), netip.Addr{}, to, patience); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("IPv%s, service %s without a server: connection %v, error %v", f, s.name, conn, err)
			}
			stop := serveUntil(t, server.Namespace(), netip.AddrPortFrom(server.Address(f), s.port))
			for range 3 {
				conn := dialTo(t, l, "b", "tcp", to)
				transferOver(t, conn, f)
				if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				_, err := conn.Write([]byte{resetByte})
				if err == nil {
					_, err = conn.Read(make([]byte, 1))
				}
				if !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("IPv%s, service %s: the server reset the connection, the client got %v", f, s.name, err)
				}
				conn.Close()
			}
			stop()
		}
	}
}

// resetByte asks a server of serveUntil to reset the connection. A transfer does not have it.
const resetByte = 0

// serveUntil echoes on TCP connections until a resetByte comes, and then resets.
func serveUntil(t *testing.T, in *namespace.Namespace, at netip.AddrPort) (stop func()) {
	t.Helper()
	var listener *net.TCPListener
	if err := in.Do(func() (err error) {
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.AcceptTCP()
			if err != nil {
				return
			}
			go echoUntilReset(conn)
		}
	}()
	return func() { listener.Close() }
}

func echoUntilReset(conn *net.TCPConn) {
	defer conn.Close()
	if conn.SetLinger(0) != nil {
		return
	}
	buf := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buf)
		if err != nil || n > 0 && buf[n-1] == resetByte {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}
