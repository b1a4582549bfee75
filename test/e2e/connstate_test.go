package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// tracked is an open TCP connection to pod a of node1, with both its ends and the nodes that its packets pass.
type tracked struct {
	client, server *net.TCPConn
	nodes          []*lab.Node
}

func (c *tracked) String() string {
	return fmt.Sprint(c.client.LocalAddr(), " -> ", c.client.RemoteAddr())
}

// entry returns the kernel's entry of the connection on a node, whichever end it takes for the client.
func (c *tracked) entry(t *testing.T, n *lab.Node) (found conntrack.Connection, ok bool) {
	t.Helper()
	from, to := c.client.LocalAddr().(*net.TCPAddr).AddrPort(), c.client.RemoteAddr().(*net.TCPAddr).AddrPort()
	if err := n.Namespace().Do(func() error {
		kernel, err := conntrack.OpenKernel()
		if err != nil {
			return err
		}
		err = kernel.Dump(func(e conntrack.Connection) {
			o := e.Original
			src, dst := netip.AddrPortFrom(o.Src, o.SrcPort), netip.AddrPortFrom(o.Dst, o.DstPort)
			if o.Protocol == unix.IPPROTO_TCP && (src == from && dst == to || src == to && dst == from) {
				found, ok = e, true
			}
		})
		return errors.Join(err, kernel.Close())
	}); err != nil {
		t.Fatal(err)
	}
	return found, ok
}

// is waits until all nodes have the connection in a state.
func (c *tracked) is(t *testing.T, want conntrack.State) {
	t.Helper()
	for _, n := range c.nodes {
		eventually.True(t, fmt.Sprintf("%s: %s in state %d", n.Name(), c, want), func() bool {
			e, ok := c.entry(t, n)
			return ok && e.State == want
		})
	}
}

// lasts waits until all nodes keep the connection for a time after its last packet. Until all data are acknowledged
// (the receiver may wait 40 ms with that), the kernel keeps an established connection for 5 minutes at most.
func (c *tracked) lasts(t *testing.T, want time.Duration) {
	t.Helper()
	for _, n := range c.nodes {
		eventually.True(t, fmt.Sprintf("%s: %s with a time-out of %s", n.Name(), c, want), func() bool {
			e, ok := c.entry(t, n)
			return ok && e.Timeout <= want && e.Timeout > want-time.Minute
		})
	}
}

// carry sends bytes from one end to the other.
func carry(t *testing.T, from, to net.Conn, bytes int) {
	t.Helper()
	end := time.Now().Add(patience)
	if err := errors.Join(from.SetWriteDeadline(end), to.SetReadDeadline(end)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := from.Write(make([]byte, bytes))
		sent <- err
	}()
	if _, err := io.ReadFull(to, make([]byte, bytes)); err != nil {
		t.Errorf("%d bytes: %v", bytes, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestConnectionStates: the kernel's connection tracking follows connections to their end, also while their packets skip
// the host (offload, on the kernel's datapath): half-closed, closed and reset ones, and idle ones, whose time-outs count from the last packet.
// After an entry has expired, policy judges the next packet. Streams live through a hundred changes of policy.
func TestConnectionStates(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			connectionStates(t, newLabWith(t, lab.Config{Backend: backend}))
		})
	}
}

// timeouts sets the kernel's time-out of established connections on some nodes, in seconds.
func timeouts(t *testing.T, nodes []*lab.Node, seconds int) {
	t.Helper()
	for _, n := range nodes {
		shell(t, n, fmt.Sprintf("echo %d >/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established", seconds))
	}
}

func connectionStates(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes))
	all := map[string][]*tracked{}
	for _, kind := range []string{"half-closed", "reset", "idle", "expired"} {
		for _, f := range model.Families() {
			for from, nodes := range map[string][]*lab.Node{"b": {l.Node("node1")}, "c": {l.Node("node1"), l.Node("node2")}} {
				all[kind] = append(all[kind], openTracked(t, l, from, f, nodes))
			}
		}
	}
	for _, c := range all["half-closed"] {
		if err := c.client.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		c.is(t, conntrack.StateCloseWait)
		carry(t, c.server, c.client, 256<<10)
		c.is(t, conntrack.StateCloseWait)
		c.server.Close()
		c.is(t, conntrack.StateTimeWait)
	}
	for _, c := range all["reset"] {
		if err := c.server.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		c.server.Close()
		c.is(t, conntrack.StateClosed)
	}
	nodes := []*lab.Node{l.Node("node1"), l.Node("node2")}
	for _, seconds := range []int{600, 6000} {
		timeouts(t, nodes, seconds)
		for _, c := range all["idle"] {
			carry(t, c.client, c.server, 1)
			carry(t, c.server, c.client, 1)
			c.lasts(t, time.Duration(seconds)*time.Second)
		}
	}
	timeouts(t, nodes, 1)
	for _, c := range all["expired"] {
		carry(t, c.client, c.server, 1)
		carry(t, c.server, c.client, 1)
	}
	for _, c := range all["expired"] {
		for _, n := range c.nodes {
			eventually.True(t, fmt.Sprintf("%s: end of the entry of %s", n.Name(), c), func() bool { _, ok := c.entry(t, n); return !ok })
		}
	}
	timeouts(t, nodes, 6000)
	set(t, l, state(t, threeNodes, noIngress))
	for _, c := range all["idle"] {
		carry(t, c.client, c.server, 1)
		carry(t, c.server, c.client, 1)
	}
	for _, c := range all["expired"] {
		if err := c.server.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.client.Write([]byte{'!'}); err != nil {
			t.Fatal(err)
		}
		if n, err := c.server.Read(make([]byte, 1)); err == nil && n > 0 {
			t.Errorf("%s: a packet passes that policy denies, after the entry has expired", c)
		}
	}
	hundredChanges(t, l)
	for _, c := range all["idle"] {
		carry(t, c.client, c.server, 1)
		carry(t, c.server, c.client, 1)
	}
}

// openTracked opens a connection to a server of its own in pod a, which policy allows.
func openTracked(t *testing.T, l *lab.Lab, from string, f model.Family, nodes []*lab.Node) *tracked {
	t.Helper()
	a, client := l.Pod(pod("a")), l.Pod(pod(from))
	var listener net.Listener
	if err := a.Namespace().Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", netip.AddrPortFrom(a.Address(f), 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := &tracked{nodes: nodes}
	if err := client.Namespace().Do(func() error {
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: client.Address(f).AsSlice()}, KeepAlive: -1}
		conn, err := d.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err == nil {
			c.client = conn.(*net.TCPConn)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.server = server.(*net.TCPConn)
	if err := c.server.SetKeepAlive(false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.client.Close(); c.server.Close() })
	carry(t, c.client, c.server, 1)
	carry(t, c.server, c.client, 1)
	return c
}

// hundredChanges changes what policy allows to pod a a hundred times, under streams that it always allows.
func hundredChanges(t *testing.T, l *lab.Lab) {
	t.Helper()
	set(t, l, state(t, threeNodes, onlyFromC))
	tr := startTraffic(t, l, [][2]string{{"c", "a"}}, [][2]string{{"d", "a"}})
	for i := range 100 {
		more := onlyFromC
		if i%2 == 0 {
			more += fmt.Sprintf(`---
{kind: NetworkPolicy, metadata: {namespace: x, name: also}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}], ports: [{port: %d}]}]}}
`, 80+i)
		}
		set(t, l, state(t, threeNodes, more))
	}
	tr.stop(t)
}
