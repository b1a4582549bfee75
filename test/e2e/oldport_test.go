package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

const (
	noIngress = `
{kind: NetworkPolicy, metadata: {namespace: x, name: no-ingress}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress]}}
`
	noEgress = `
{kind: NetworkPolicy, metadata: {namespace: x, name: no-egress}, spec: {podSelector: {matchExpressions: [{key: pod, operator: In, values: [b, c]}]}, policyTypes: [Egress]}}
`
)

// TestNewConnectionFromAnOldPort ends connections that policy allowed, and opens new
// ones from their ports when it denies them. Connection tracking takes them for the
// old ones, if the server reset those or both ends vanished
// silently. Policy judges them all the same. Once it allows them again,
// they open.
func TestNewConnectionFromAnOldPort(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, backend string) {
		set(t, l, state(t, threeNodes))
		pairs := oldPairs(t, l)
		for _, p := range pairs {
			p.loseReset(t)
		}
		for _, policy := range []string{noEgress, noIngress, ""} {
			set(t, l, state(t, threeNodes))
			for _, p := range pairs {
				p.openAndEnd(t)
			}
			if policy == "" {
				break
			}
			set(t, l, state(t, threeNodes, policy))
			for _, p := range pairs {
				// The second one meets the leftovers of the first one.
				for range 2 {
					if conn, err := p.connect(200 * time.Millisecond); err == nil {
						t.Errorf("%s: open, under %s", p, policy)
						conn.Close()
					}
				}
			}
		}
	})
}

// TestOldPortsOverHandover opens connections through a NodePort, for which the
// proxy hides the sources behind the node's address, ends them, and changes the backend to
// one that never judges this node. New connections from the same ports then do not count as
// the node's; connections that the server has reset open again, as long as policy allows it.
func TestOldPortsOverHandover(t *testing.T) {
	l := newLab(t)
	set(t, l, state(t, threeNodes, newcomer))
	runProxyFor(t, l, proxyModes()["nftables"], []service{{number: 5, name: "e", endpoint: "e"}})
	var pairs []*oldPair
	for _, f := range model.Families() {
		p := oldPair{port: 40000, to: netip.AddrPortFrom(l.Node("node1").Address(f), 30005)}
		var err error
		if p.from, p.source, err = l.Host("ip:"+outside, f); err != nil {
			t.Fatal(err)
		}
		p.listen(t, l.Pod(pod("e")), netip.AddrPortFrom(l.Pod(pod("e")).Address(f), 80))
		vanishing := p
		vanishing.vanish = true
		pairs = append(pairs, &p, &vanishing)
	}
	for _, p := range pairs {
		p.openAndEnd(t)
	}
	for _, name := range []string{"node1", "node2", "node3"} {
		change(t, l.Node(name), config.OpenFlow)
	}
	for _, p := range pairs {
		if !p.vanish {
			p.openAndEnd(t)
		}
	}
	set(t, l, state(t, threeNodes, newcomer, denyAll))
	for _, p := range pairs {
		if conn, err := p.connect(time.Second); err == nil {
			t.Errorf("%s: open", p)
			conn.Close()
		}
	}
}

// oldPair is a client and a server that connect again and again.
type oldPair struct {
	from   *namespace.Namespace
	source netip.Addr
	// to is the address that the client connects to.
	to       netip.AddrPort
	listener *net.TCPListener
	// port is the client's. If both ends vanish, it is another one each time.
	port   uint16
	vanish bool
}

// String names the pair.
func (p *oldPair) String() string {
	end := "reset"
	if p.vanish {
		end = "vanished"
	}
	return fmt.Sprintf("%s -> %s, %s", netip.AddrPortFrom(p.source, p.port), p.to, end)
}

// oldPairs has x/a serve x/b on its node, and x/c across the tunnel.
func oldPairs(t *testing.T, l *lab.Lab) []*oldPair {
	t.Helper()
	var all []*oldPair
	server := l.Pod(pod("a"))
	for _, from := range []string{"b", "c"} {
		client := l.Pod(pod(from))
		for _, f := range model.Families() {
			for _, vanish := range []bool{false, true} {
				at := netip.AddrPortFrom(server.Address(f), uint16(8000+len(all)))
				p := &oldPair{from: client.Namespace(), source: client.Address(f), to: at, port: 40000, vanish: vanish}
				p.listen(t, server, at)
				all = append(all, p)
			}
		}
	}
	return all
}

func (p *oldPair) listen(t *testing.T, server *lab.Pod, at netip.AddrPort) {
	t.Helper()
	if err := server.Namespace().Do(func() (err error) {
		p.listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.listener.Close() })
}

func (p *oldPair) connect(timeout time.Duration) (*os.File, error) {
	return traffic.ConnectFrom(p.from, netip.AddrPortFrom(p.source, p.port), p.to, timeout)
}

// openAndEnd opens a connection, sends a byte to the server, and ends it.
func (p *oldPair) openAndEnd(t *testing.T) {
	t.Helper()
	if p.vanish {
		p.port++
	}
	client, err := p.connect(patience)
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	defer client.Close()
	if _, err := client.Write([]byte{'?'}); err != nil {
		t.Fatal(err)
	}
	server, err := p.listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if p.vanish {
		repair(t, server)
		repair(t, client)
		return
	}
	if err := server.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	server.Close()
	// It has arrived when the client receives the reset.
	if err := client.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Fatalf("%s: after a reset: %v", p, err)
	}
}

// loseReset opens connections from one port, and each ends unseen before the next one. If only the client vanishes, the server's answer to
// the next request is one of the old connection: the client resets that, and asks again.
func (p *oldPair) loseReset(t *testing.T) {
	t.Helper()
	old := *p
	for range 2 {
		var client *os.File
		var err error
		eventually.True(t, "the port is free", func() bool {
			client, err = old.connect(patience)
			return !errors.Is(err, unix.EADDRINUSE) // of another socket of the pod, or of the one before
		})
		if err != nil {
			t.Fatalf("%s, and the connection before ended unseen: %v", &old, err)
		}
		defer client.Close()
		server, err := p.listener.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		repair(t, client)
		client.Close()
		if p.vanish {
			repair(t, server)
			server.Close()
		}
	}
}

// repair has the kernel send nothing when the socket is closed (TCP_REPAIR, tcp(7)).
func repair(t *testing.T, conn syscall.Conn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var refused error
	err = raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_REPAIR, 1) })
	if err := cmp.Or(err, refused); err != nil {
		t.Fatal(err)
	}
}
