package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// TestTupleCollision: a pod has a connection through a Service and one to the endpoint directly, both from one source port, as Linux gives
// it to connections with different destinations. Both work, whichever began first, also after the end of the first one.
func TestTupleCollision(t *testing.T) {
	t.Parallel()
	l := newLabWith(t, lab.Config{Backend: config.OpenFlow})
	set(t, l, state(t, threeNodes))
	services := []service{{number: 1, name: "a", endpoint: "a", port: pushPort}, {number: 3, name: "c", endpoint: "c", port: pushPort}}
	runProxyFor(t, l, proxyModes()["nftables"], services)
	port := 42100
	for _, s := range services {
		for _, f := range model.Families() {
			server := l.Pod(pod(s.endpoint))
			at := netip.AddrPortFrom(server.Address(f), s.port)
			serveUntil(t, server.Namespace(), at)
			serveUDP(t, server.Namespace(), at)
			through := netip.AddrPortFrom(s.address(f), servicePort)
			translateUDP(t, l, through, at)
			for _, network := range []string{"tcp", "udp"} {
				for _, order := range [][2]netip.AddrPort{{at, through}, {through, at}} {
					port++
					collide(t, l, network, port, order)
				}
			}
		}
	}
}

// translateUDP translates UDP to a Service too; the proxies of these tests have TCP alone.
func translateUDP(t *testing.T, l *lab.Lab, service, endpoint netip.AddrPort) {
	t.Helper()
	family := "ip"
	if service.Addr().Is6() {
		family = "ip6"
	}
	chain := "add table inet datagrams\nadd chain inet datagrams pre { type nat hook prerouting priority dstnat; }\n"
	shell(t, l.Node("node1"), fmt.Sprintf("nft -f - <<'END'\n%sadd rule inet datagrams pre %s daddr %s udp dport %d dnat %s to %s\nEND", chain, family, service.Addr(), service.Port(), family, endpoint))
}

// collide opens two connections of pod b from one port, one after the other, and uses both.
func collide(t *testing.T, l *lab.Lab, network string, port int, order [2]netip.AddrPort) {
	t.Helper()
	name := fmt.Sprintf("%s from port %d, first to %s, then to %s", network, port, order[0], order[1])
	var conns [2]net.Conn
	say := func(i int, text string) {
		t.Helper()
		got := make([]byte, len(text))
		if err := conns[i].SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, err := conns[i].Write([]byte(text))
		if err == nil {
			_, err = conns[i].Read(got)
		}
		if err != nil || string(got) != text {
			t.Errorf("%s: %q on connection %d: answer %q, %v", name, text, i+1, got, err)
		}
	}
	for i, to := range order {
		d := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			if err == nil {
				err = failed
			}
			return err
		}}
		if d.LocalAddr = net.Addr(&net.TCPAddr{Port: port}); network == "udp" {
			d.LocalAddr = &net.UDPAddr{Port: port}
		}
		err := l.Pod(pod("b")).Namespace().Do(func() (err error) {
			conns[i], err = d.DialContext(context.Background(), network, to.String())
			return err
		})
		if err != nil {
			t.Errorf("%s: connection %d: %v", name, i+1, err)
			return
		}
		defer conns[i].Close()
		say(i, "begin")
	}
	for _, text := range []string{"one", "two"} {
		say(0, text)
		say(1, text)
	}
	conns[0].Close()
	say(1, "after the end of the first one")
}
