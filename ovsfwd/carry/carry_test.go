package carry

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

func pingSocket(six bool) (int, error) {
	if six {
		return unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	}
	return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
}

// traffic is connections of all kinds that must go on.
type traffic struct {
	pushing []*stream
	idle    []*stream
	udp     []*datagrams
	pings   []*echo
}

// traffic opens them. Every one could not be opened by its server.
func (c *cluster) traffic() *traffic {
	c.t.Helper()
	w := &traffic{}
	for i, f := range []struct{ a, b, service, node, world string }{
		{podA4, podB4, service4, node4, world4}, {podA6, podB6, service6, node6, world6},
	} {
		next := 9000 + 100*i
		direct := func(name, from, to, server string) *stream {
			next++
			at := net.JoinHostPort(to, port(next))
			return c.open(fmt.Sprintf("%s %s", name, at), from, at, server, at)
		}
		backend := net.JoinHostPort(f.b, port(backendPort))
		pushes := []*stream{
			direct("pod to pod", "a", f.b, "b"),
			direct("pod to world, hidden", "a", f.world, "world"),
			direct("node to pod", "node", f.a, "a"),
			direct("pod to node", "c", f.node, "node"),
			c.open("pod to Service "+f.service, "a", net.JoinHostPort(f.service, port(servicePort)), "b", backend),
			c.open("world to node port "+f.node, "world", net.JoinHostPort(f.node, port(nodePort)), "b", backend),
		}
		for _, s := range pushes {
			s.push(s.server, s.client)
		}
		up := direct("upload", "a", f.b, "b")
		up.push(up.client, up.server)
		w.pushing = append(append(w.pushing, pushes...), up)
		w.idle = append(w.idle, direct("idle", "a", f.b, "b"), direct("idle to world", "a", f.world, "world"))
		at := net.JoinHostPort(f.b, port(next))
		w.udp = append(w.udp, c.datagrams("udp "+at, "a", at, "b", at),
			c.datagrams("udp to Service "+f.service, "a", net.JoinHostPort(f.service, port(servicePort)), "b", backend))
		w.pings = append(w.pings, c.ping("a", f.b), c.ping("a", f.world), c.ping("node", f.a))
	}
	return w
}

// alive asserts that all of them go on, without a loss.
func (w *traffic) alive(t *testing.T) {
	t.Helper()
	for _, s := range w.pushing {
		s.alive(t)
	}
	for _, d := range w.udp {
		d.alive(t)
	}
	for _, e := range w.pings {
		e.once(t)
	}
}

func TestConnectionsGoOn(t *testing.T) {
	c := newCluster(t)
	c.steer(pipeline.Steer)
	w := c.traffic()
	w.alive(t)
	for range 2 {
		c.toSwitch()
		w.alive(t)
		if r := c.carry(c.carrier.ToSwitch); r.Written != 0 || r.Allowed == 0 {
			t.Errorf("to the switch once more: %+v, want nothing written", r)
		}
		c.toKernel()
		w.alive(t)
		if r := c.carry(c.carrier.ToKernel); r.Written != 0 || r.Allowed == 0 {
			t.Errorf("to the kernel once more: %+v, want nothing written", r)
		}
	}
	for _, s := range w.idle {
		s.ask(t)
	}
	c.toSwitch()
	for _, s := range w.idle {
		s.ask(t)
	}
}

// TestWithoutCarrying shows why connections are copied: after a change of the
// backend, packets of a server that sends first are lost until the copy.
func TestWithoutCarrying(t *testing.T) {
	c := newCluster(t)
	c.steer(pipeline.Steer)
	at := net.JoinHostPort(podB4, "9000")
	for _, step := range []struct {
		mode  pipeline.Mode
		carry func(context.Context) (Result, error)
	}{{pipeline.Full, c.carrier.ToSwitch}, {pipeline.Steer, c.carrier.ToKernel}} {
		s := c.open("push", "a", at, "b", at)
		c.steer(step.mode)
		c.settle()
		if step.mode == pipeline.Steer {
			// It has an entry from the beginning, of before the flip to the switch.
			c.in(c.NS, "conntrack", "-F")
		}
		if _, err := s.server.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = s.client.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if n, err := s.client.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: %d bytes came by unknown connections", step.mode, n)
		}
		c.carry(step.carry)
		_ = s.client.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := s.client.Read(make([]byte, 1)); err != nil {
			t.Errorf("%s: after carrying: %v", step.mode, err)
		}
	}
}

func TestUnmarkedIsNotCarried(t *testing.T) {
	c := newCluster(t)
	c.steer(pipeline.Steer)
	// The policy table is flushed, so that a connection opens that policy denies.
	c.in(c.NS, "nft", "flush", "table", "inet", "judge")
	at := net.JoinHostPort(podA4, "9000")
	denied := c.open("denied", "c", at, "a", at)
	c.in(c.NS, "nft", "delete", "table", "inet", "judge")
	_, policy, _ := strings.Cut(rules4and6, "table inet judge")
	c.nft("table inet judge" + policy)
	at = net.JoinHostPort(podB4, "9000")
	allowed := c.open("allowed", "a", at, "b", at)
	r := c.carry(c.carrier.ToSwitch)
	if r.Allowed != 1 || r.Written != 1 {
		t.Errorf("%+v: want the one connection that policy has let through", r)
	}
	c.toSwitch()
	allowed.ask(t)
	if _, err := denied.client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	allowed.ask(t)
	known, err := c.carrier.client.DumpConntrack(c.Context(), pipeline.Zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range known {
		if k.Original.Src.String() == podC4 && isAllowed(&k) {
			t.Errorf("allowed in the switch: %+v", k)
		}
	}
	// And back: connections that the switch did not allow get no mark.
	c.in(c.NS, "conntrack", "-F")
	c.toKernel()
	allowed.ask(t)
	for _, line := range c.conntrackEntries("-s", podC4) {
		if strings.Contains(line, "mark=536870912") {
			t.Errorf("marked as allowed: %s", line)
		}
	}
}

// TestNextConnectionFromThePort has a client come back to its port, when its first
// connection has ended in the midst of a change. The kernel has met only an answer of
// that: one that was on its way when packets began to go there.
func TestNextConnectionFromThePort(t *testing.T) {
	c := newCluster(t)
	for i, f := range []struct{ a, b string }{{podA4, podB4}, {podA6, podB6}} {
		for j, endsLater := range []bool{false, true} {
			c.steer(pipeline.Full)
			c.settle()
			client, server := 40000+2*i+j, 9000+2*i+j
			first := c.dial(f.a, f.b, client, server)
			c.in(c.NS, "conntrack", "-I", "-p", "tcp", "-s", f.b, "-d", f.a, "--sport", port(server), "--dport", port(client),
				"--state", "ESTABLISHED", "-t", "300", "-m", "0x20000000")
			c.carry(c.carrier.ToKernel)
			if !endsLater {
				c.reset(first)
			}
			c.steer(pipeline.Steer)
			c.settle()
			c.carry(c.carrier.ToKernel)
			if endsLater {
				first.ask(t)
				c.reset(first)
			}
			c.reset(c.dial(f.a, f.b, client, server))
		}
	}
}

// TestRequestOnItsWay has a client come back to its port, while its first connection stands as established in the switch, which has not seen the end.
// The new request has no answer when packets are about to be led to the switch: this must not know it.
func TestRequestOnItsWay(t *testing.T) {
	c := newCluster(t)
	for i, f := range []struct{ a, b string }{{podA4, podB4}, {podA6, podB6}} {
		c.steer(pipeline.Full)
		c.settle()
		client, server := 41000+i, 9100+i
		first := c.dial(f.a, f.b, client, server)
		c.carry(c.carrier.ToKernel)
		c.steer(pipeline.Steer)
		c.settle()
		c.carry(c.carrier.ToKernel)
		first.ask(t)
		c.reset(first)
		c.in(c.ns("b"), "nft", "add table inet silent; add chain inet silent in { type filter hook input priority 0; }; add rule inet silent in tcp dport "+port(server)+" drop")
		inNamespace(t, c.ns("a"), func() {
			d := net.Dialer{Timeout: 300 * time.Millisecond, LocalAddr: &net.TCPAddr{IP: net.ParseIP(f.a), Port: client}}
			if conn, err := d.Dial("tcp", net.JoinHostPort(f.b, port(server))); err == nil {
				t.Errorf("connected: %v", conn.Close())
			}
		})
		c.carry(c.carrier.ToSwitchAhead)
		all, err := c.carrier.client.DumpConntrack(c.Context(), pipeline.Zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range all {
			if k.Original.SrcPort == uint16(client) && k.Original.DstPort == uint16(server) {
				t.Errorf("the switch knows %+v", k)
			}
		}
		c.in(c.ns("b"), "nft", "delete table inet silent")
		c.steer(pipeline.Full)
		c.settle()
		c.carry(c.carrier.ToSwitch)
		next := c.dial(f.a, f.b, client, server)
		next.ask(t)
		c.reset(next)
	}
}

// TestAddressThatChangedHands removes pod a and gives its addresses to another pod.
// The new pod must not inherit the connection on which b may send to a.
func TestAddressThatChangedHands(t *testing.T) {
	c := newCluster(t)
	c.steer(pipeline.Full)
	at := net.JoinHostPort(podB4, "9000")
	s, other := c.open("push", "a", at, "b", at), c.open("node's", "node", net.JoinHostPort(podB4, "9001"), "b", net.JoinHostPort(podB4, "9001"))
	c.ping("a", podB4)
	c.ping("a", podB6)
	s.ask(t)
	// As a packet of SCTP leaves them behind, one of a, one of others.
	for _, ends := range []string{"nw_src=" + podA4, "nw_dst=" + podA4, "nw_src=" + podC4} {
		c.Ofctl("add-flow", fmt.Sprintf("cookie=%#x,table=%d,sctp,%s,tp_src=1,tp_dst=2 actions=drop",
			uint64(pipeline.AssociationOwner)<<48|3, pipeline.TableAssociations, ends))
	}
	conntrack := hostnet.NewConntrack(c.carrier)
	forget := func() (n int) {
		t.Helper()
		inNamespace(t, c.NS, func() {
			var err error
			if n, err = conntrack.Apply(c.Context()); err != nil {
				t.Error(err)
			}
		})
		return n
	}
	for _, a := range addrs(podA4, podA6) {
		conntrack.Forget(a)
	}
	if n := forget(); n < 3 {
		t.Errorf("forgot %d connections, want at least 3", n)
	}
	known, err := c.carrier.client.DumpConntrack(c.Context(), pipeline.Zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range known {
		if a := k.Original.Src.String(); a == podA4 || a == podA6 {
			t.Errorf("still known: %+v", k)
		}
	}
	if out := c.Ofctl("dump-flows", fmt.Sprintf("table=%d", pipeline.TableAssociations)); strings.Contains(out, podA4) || !strings.Contains(out, podC4) {
		t.Errorf("associations that are known:\n%s", out)
	}
	if _, err := s.server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_ = s.client.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := s.client.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came from b, which may not send to a", n)
	}
	other.ask(t)

	// A switch that does not run knows nothing.
	if err := c.Daemons.KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	conntrack.Forget(netip.MustParseAddr(podA4))
	if n := forget(); n != 0 {
		t.Errorf("forgot %d connections of a switch that does not run", n)
	}
}
