package e2e

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
)

// TestNodeReceivesOnce sends datagrams from outside to a node with its uplink in
// a userspace bridge: the host takes each of them once, and not from the uplink too.
func TestNodeReceivesOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes))
	const sent = 50
	for _, f := range model.Families() {
		from, source, err := l.Host("ip:"+outside, f)
		if err != nil {
			t.Fatal(err)
		}
		to := netip.AddrPortFrom(l.Node("node1").Address(f), 7778)
		server := socketIn(t, l.Node("node1").Namespace(), to)
		client := socketIn(t, from, netip.AddrPortFrom(source, 0))
		received := 0
		for range sent {
			if _, err := client.WriteToUDPAddrPort([]byte{'?'}, to); err != nil {
				t.Fatal(err)
			}
			// The first one has to come; a second would come at once.
			for wait := patience; ; wait = 20 * time.Millisecond {
				if err := server.SetReadDeadline(time.Now().Add(wait)); err != nil {
					t.Fatal(err)
				}
				_, _, err := server.ReadFromUDPAddrPort(make([]byte, 1))
				if errors.Is(err, os.ErrDeadlineExceeded) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				received++
			}
		}
		if received != sent {
			t.Errorf("IPv%s: of %d datagrams the node received %d", f, sent, received)
		}
	}
}

// socketIn opens a UDP socket in a namespace until the test ends.
func socketIn(t *testing.T, in *namespace.Namespace, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	err := in.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
