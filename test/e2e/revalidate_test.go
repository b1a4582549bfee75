package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// endedWithin bounds the time from the end of a change to the last echo of a connection that it denies. The
// change is in force before SetState returns.
const endedWithin = time.Second

// talker is a connection of one pod to another, over which bytes are echoed all the time.
type talker struct {
	name string
	conn connected
	done chan struct{}

	mu sync.Mutex
	// echoed counts the echoes, at is the time of the last one, and gap the longest time between two.
	echoed int
	at     time.Time
	gap    time.Duration
	err    error
}

// connected is a connected socket.
type connected interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
}

// talkTo begins to talk.
func talkTo(t *testing.T, name string, conn connected) *talker {
	t.Helper()
	k := &talker{name: name, conn: conn, done: make(chan struct{}), at: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(k.done)
		for n := uint32(0); ctx.Err() == nil; n++ {
			if err := k.echo(byte(n)); err != nil && !os.IsTimeout(err) {
				k.mu.Lock()
				k.err = err
				k.mu.Unlock()
				return
			}
			pause(ctx, 2*time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		cancel()
		conn.Close()
		<-k.done
	})
	return k
}

// echo sends a byte, and waits some time for what comes back.
func (k *talker) echo(b byte) error {
	if err := k.conn.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		return err
	}
	if _, err := k.conn.Write([]byte{b}); err != nil {
		return err
	}
	if _, err := k.conn.Read(make([]byte, 64)); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.echoed, k.gap, k.at = k.echoed+1, max(k.gap, time.Since(k.at)), time.Now()
	return nil
}

func (k *talker) last() (time.Time, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at, k.echoed
}

// wait waits until there are new echoes.
func (k *talker) wait(t *testing.T) {
	t.Helper()
	_, before := k.last()
	eventually.True(t, "more echoes of "+k.name, func() bool { _, n := k.last(); return n > before+3 })
}

// dialTo opens a connection from an address of a pod.
func dialTo(t *testing.T, l *lab.Lab, from, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	a := l.Pod(pod(from))
	var conn net.Conn
	err := a.Namespace().Do(func() (err error) {
		d := net.Dialer{Timeout: patience}
		conn, err = d.DialContext(t.Context(), network, to.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// serveUDP echoes datagrams.
func serveUDP(t *testing.T, in *namespace.Namespace, at netip.AddrPort) {
	t.Helper()
	var conn *net.UDPConn
	if err := in.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.WriteToUDPAddrPort(b[:n], from)
			}
		}
	}()
}

const udpPort = 9001

// talkers begins TCP and UDP over both families between pairs of pods.
func talkers(t *testing.T, l *lab.Lab, pairs ...[2]string) []*talker {
	t.Helper()
	var all []*talker
	for _, f := range model.Families() {
		for _, p := range pairs {
			to := l.Pod(pod(p[1]))
			tcp, udp := netip.AddrPortFrom(to.Address(f), 80), netip.AddrPortFrom(to.Address(f), udpPort)
			name := fmt.Sprintf("%s -> %s IPv%s ", p[0], p[1], f)
			all = append(all, talkTo(t, name+"tcp", dialTo(t, l, p[0], "tcp", tcp)), talkTo(t, name+"udp", dialTo(t, l, p[0], "udp", udp)))
		}
	}
	return all
}

// end checks that connections end in time after a change, and others lose nothing.
func end(t *testing.T, what string, denied, allowed []*talker, change func()) {
	t.Helper()
	for _, k := range append(append([]*talker(nil), denied...), allowed...) {
		k.wait(t)
		k.mu.Lock()
		k.gap = 0
		k.mu.Unlock()
	}
	change()
	changed, watch := time.Now(), stopwatch.Start(t)
	var late time.Duration
	pause(t.Context(), endedWithin)
	within := endedWithin + watch.Lap(t).Lost
	pause(t.Context(), within-endedWithin+300*time.Millisecond)
	for _, k := range denied {
		at, _ := k.last()
		late = max(late, at.Sub(changed))
		if at.Sub(changed) > within {
			t.Errorf("%s: %s has an echo %s after the change", what, k.name, at.Sub(changed))
		}
	}
	for _, k := range allowed {
		k.wait(t)
		k.mu.Lock()
		if k.err != nil {
			t.Errorf("%s: %s: %v", what, k.name, k.err)
		}
		k.mu.Unlock()
	}
	t.Logf("%s: the last echo came %s after the change", what, late)
}

// TestDeniedConnectionsEnd changes policy, labels of a pod and labels of a namespace, and adds policies of the
// other tiers, under connections within a node and across the tunnel, through a Service too. With
// existingConnections "revalidate" those that are denied then end, and no others. Two backends at once: half
// the time is waiting, and the last echoes came 130 ms after a change at most, with a load of 20 on two processors.
func TestDeniedConnectionsEnd(t *testing.T) {
	pairs := make(chan struct{}, 2)
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			pairs <- struct{}{}
			t.Cleanup(func() { <-pairs }) // after the lab is down
			l := newLabWith(t, lab.Config{Backend: backend, ExistingConnections: config.Revalidate})
			deniedConnectionsEnd(t, l)
		})
	}
}

func deniedConnectionsEnd(t *testing.T, l *lab.Lab) {
	const (
		ingress = `
{kind: NetworkPolicy, metadata: {namespace: x, name: in}, spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: d}}}]}]}}
`
		egress = `
{kind: NetworkPolicy, metadata: {namespace: x, name: out}, spec: {podSelector: {matchLabels: {pod: b}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {pod: c}}}]}]}}
`
		admin = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: keep-out}
spec:
  tier: Admin
  priority: 10
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: a}}}}
  ingress:
  - {action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: c}}}}]}
`
		baseline = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: by-default}
spec:
  tier: Baseline
  priority: 10
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: a}}}}
  ingress:
  - {action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: b}}}}]}
`
		byLabel = `
{kind: NetworkPolicy, metadata: {namespace: x, name: labelled}, spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchExpressions: [{key: banned, operator: DoesNotExist}]}}]}]}}
`
		byNamespace = `
{kind: NetworkPolicy, metadata: {namespace: x, name: spaced}, spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {trusted: "yes"}}}]}]}}
`
		banned = `
{kind: Pod, metadata: {namespace: x, name: b, labels: {pod: b, banned: "yes"}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}]}]}}
`
		trusted = `
{kind: Namespace, metadata: {name: x, labels: {trusted: "yes"}}}
`
		distrusted = `
{kind: Namespace, metadata: {name: x}}
`
	)
	set(t, l, state(t, threeNodes))
	for _, name := range []string{"a", "b", "c", "d"} {
		for _, f := range model.Families() {
			p := l.Pod(pod(name))
			serveUDP(t, p.Namespace(), netip.AddrPortFrom(p.Address(f), udpPort))
		}
	}
	for _, c := range []struct {
		name            string
		before, after   []string
		denied, allowed [][2]string
	}{
		{
			"ingress", nil,
			[]string{ingress},
			[][2]string{{"b", "a"}, {"c", "a"}},
			[][2]string{{"d", "a"}, {"a", "b"}, {"a", "c"}, {"b", "c"}},
		},
		{"egress", nil, []string{egress}, [][2]string{{"b", "a"}, {"b", "d"}}, [][2]string{{"b", "c"}, {"a", "b"}, {"c", "b"}}},
		{"admin tier", nil, []string{admin}, [][2]string{{"c", "a"}}, [][2]string{{"b", "a"}, {"a", "c"}}},
		{"baseline tier", nil, []string{baseline}, [][2]string{{"b", "a"}}, [][2]string{{"c", "a"}, {"a", "b"}}},
		{"label of a pod", []string{byLabel}, []string{byLabel, banned}, [][2]string{{"b", "a"}}, [][2]string{{"c", "a"}, {"a", "b"}}},
		{"label of a namespace", []string{trusted, byNamespace}, []string{distrusted, byNamespace}, [][2]string{{"b", "a"}, {"c", "a"}}, [][2]string{{"a", "b"}, {"b", "c"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			set(t, l, state(t, append([]string{threeNodes}, c.before...)...))
			denied, allowed := talkers(t, l, c.denied...), talkers(t, l, c.allowed...)
			end(t, c.name, denied, allowed, func() { set(t, l, state(t, append([]string{threeNodes}, c.after...)...)) })
		})
	}
	t.Run("service", func(t *testing.T) {
		set(t, l, state(t, threeNodes))
		runProxyFor(t, l, proxyModes()["nftables"], []service{{number: 1, name: "a", endpoint: "a"}, {number: 3, name: "c", endpoint: "c"}})
		var denied, allowed []*talker
		for _, f := range model.Families() {
			for _, w := range ways(false, []string{"b -> a", "c -> a", outside + " -> node1:a"}) {
				denied = append(denied, talkTo(t, w.from+" -> "+w.to, openWay(t, l, w, f)))
			}
			for _, w := range ways(true, []string{"d -> a", "b -> c", "a -> c", "node1 -> a"}) {
				allowed = append(allowed, talkTo(t, w.from+" -> "+w.to, openWay(t, l, w, f)))
			}
		}
		end(t, "service", denied, allowed, func() { set(t, l, state(t, threeNodes, ingress)) })
	})
	if s := statusOf(t, l.Node("node1")); s.Mode != config.Revalidate || s.Ended == 0 || s.Last == nil || s.Last.Error != "" || s.Pending != 0 {
		t.Errorf("status: %+v", s)
	}
}

// TestManyDeniedConnectionsEnd denies ten thousand established connections of a pod at once.
func TestManyDeniedConnectionsEnd(t *testing.T) {
	const n = 10000
	l := newLabWith(t, lab.Config{Backend: config.NFTables, ExistingConnections: config.Revalidate})
	set(t, l, state(t, threeNodes))
	node := l.Node("node1")
	from, to := l.Pod(pod("b")).Address(model.IPv4), l.Pod(pod("a")).Address(model.IPv4)
	puts := make([]conntrack.Put, n)
	for i := range puts {
		o := conntrack.Tuple{Protocol: unix.IPPROTO_TCP, Src: from, Dst: to, SrcPort: uint16(20000 + i), DstPort: 80}
		puts[i] = conntrack.Put{New: true, MarkMask: rules.MarkAllowed, Connection: conntrack.Connection{
			Original: o, Reply: o.Reverse(), State: conntrack.StateEstablished, Replied: true, Mark: rules.MarkAllowed, Timeout: time.Hour,
		}}
	}
	if err := node.Namespace().Do(func() error {
		k, err := conntrack.OpenKernel()
		if err != nil {
			return err
		}
		_, err = k.Write(puts)
		return errors.Join(err, k.Close())
	}); err != nil {
		t.Fatal(err)
	}
	watch := stopwatch.Start(t)
	set(t, l, state(t, threeNodes, denyAll))
	changed := time.Now()
	eventually.True(t, "the end of all", func() bool { return statusOf(t, node).Ended >= n })
	s, lost := statusOf(t, node), watch.Lap(t).Lost
	t.Logf("%d connections ended %s after the change; the look took %s (at most %s of these without a processor)", s.Ended, time.Since(changed), s.Last.Took, lost)
	if s.Last.Took-lost > endedWithin {
		t.Errorf("the look took %s", s.Last.Took)
	}
}

func statusOf(t *testing.T, n *lab.Node) control.ExistingConnections {
	t.Helper()
	s, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.ExistingConnections
}

// openWay opens a connection through a Service.
func openWay(t *testing.T, l *lab.Lab, w way, f model.Family) *os.File {
	t.Helper()
	file, err := w.open(l, f, patience)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
