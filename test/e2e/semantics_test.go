package e2e

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// denyAll isolates every pod of the namespace in both directions.
const denyAll = `
{kind: NetworkPolicy, metadata: {namespace: x, name: deny-all}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}
`

// allowAll lets every pod of the namespace do everything.
const allowAll = `
{kind: NetworkPolicy, metadata: {namespace: x, name: allow-all}, spec: {podSelector: {}, ingress: [{}], egress: [{}], policyTypes: [Ingress, Egress]}}
`

// TestEstablishedConnectionsAreKept changes policy under open connections, on
// one node and across the tunnel: they go on, new ones are judged anew.
func TestEstablishedConnectionsAreKept(t *testing.T) {
	t.Parallel()
	inEachPlace(t, establishedConnectionsAreKept)
}

func establishedConnectionsAreKept(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes))
	var conns []net.Conn
	for _, f := range model.Families() {
		conns = append(conns, dial(t, l, "b", "a", f), dial(t, l, "c", "a", f))
	}
	for _, s := range [][]string{{threeNodes, denyAll}, {threeNodes, denyAll, onlyFromC}, {threeNodes}, {threeNodes, denyAll}} {
		set(t, l, state(t, s...))
		for _, c := range conns {
			talk(t, c, "after a policy change")
		}
	}
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	expect(t, l, false, "x/c", "x/a", model.TCP, 80)
}

// newcomer is a pod that joins x/a and x/b on node1.
const newcomer = `
{kind: Pod, metadata: {namespace: x, name: e, labels: {pod: e}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80, protocol: UDP}]}]}, status: {podIPs: [{ip: 10.10.0.99}]}}
`

// TestNewPodIsIsolatedFromItsFirstPacket sends datagrams to the address of a
// pod while the pod is made, again and again: none is answered before policy
// allows it, and then they are.
func TestNewPodIsIsolatedFromItsFirstPacket(t *testing.T) {
	t.Parallel()
	inEachPlace(t, newPodIsIsolatedFromItsFirstPacket)
}

func newPodIsIsolatedFromItsFirstPacket(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, denyAll))
	sender, stop := datagrams(t, l.Pod(pod("b")).Namespace().Do, netip.MustParseAddrPort("10.10.0.99:80"))
	defer stop()
	for range 5 {
		set(t, l, state(t, threeNodes, denyAll, newcomer))
		set(t, l, state(t, threeNodes, denyAll))
	}
	if n := sender.answered.Load(); n != 0 {
		t.Errorf("%d of %d datagrams to an isolated pod were answered", n, sender.sent.Load())
	}
	set(t, l, state(t, threeNodes, denyAll, allowAll, newcomer))
	eventually.True(t, "an answer after policy allows it", func() bool { return sender.answered.Load() > 0 })
	t.Logf("%d datagrams sent", sender.sent.Load())
}

// sockets is the number of source ports of a stream.
const sockets = 64

// stream is a steady stream of datagrams, each from a new port.
type stream struct{ sent, answered atomic.Int64 }

func datagrams(t *testing.T, inside func(func() error) error, to netip.AddrPort) (*stream, func()) {
	t.Helper()
	s := &stream{}
	ctx, cancel := context.WithCancel(t.Context())
	var conns []*net.UDPConn
	err := inside(func() error {
		for range sockets {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			if err != nil {
				return err
			}
			conns = append(conns, c)
		}
		return nil
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 64)
		for i := 0; ctx.Err() == nil; i++ {
			c := conns[i%sockets]
			// Refused is no answer: there is no server yet.
			if _, err := c.Write([]byte{'?'}); err == nil {
				s.sent.Add(1)
			}
			if c.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
				return
			}
			for {
				if n, err := c.Read(buffer); err != nil || n == 0 {
					break
				}
				s.answered.Add(1)
			}
		}
	}()
	return s, func() {
		cancel()
		<-done
		for _, c := range conns {
			c.Close()
		}
	}
}

// first and second have one address, one after the other; both serve UDP.
const (
	first = `
{kind: Pod, metadata: {namespace: x, name: first}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80, protocol: UDP}]}]}, status: {podIPs: [{ip: 10.10.0.98}]}}
`
	second = `
{kind: Pod, metadata: {namespace: x, name: second, labels: {closed: "yes"}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80, protocol: UDP}]}]}, status: {podIPs: [{ip: 10.10.0.98}]}}
`
	denySecond = `
{kind: NetworkPolicy, metadata: {namespace: x, name: deny-second}, spec: {podSelector: {matchLabels: {closed: "yes"}}}}
`
)

// TestReusedAddressInheritsNothing keeps a flow of datagrams going to a pod,
// on one node and from another, and gives its address to a pod that denies
// all ingress: the established flow must not open it.
func TestReusedAddressInheritsNothing(t *testing.T) {
	inEachPlaceAlone(t, reusedAddressInheritsNothing)
}

func reusedAddressInheritsNothing(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, denySecond, first))
	var streams []*stream
	for _, from := range []string{"b", "c"} {
		s, stop := datagrams(t, l.Pod(pod(from)).Namespace().Do, netip.MustParseAddrPort("10.10.0.98:80"))
		defer stop()
		streams = append(streams, s)
	}
	for _, s := range streams {
		eventually.True(t, "answers of the first pod", func() bool { return s.answered.Load() > 100 })
	}
	set(t, l, state(t, threeNodes, denySecond, second))
	for _, s := range streams {
		// Late answers of the first pod may wait in any of the sockets.
		more := func() {
			sent := s.sent.Load()
			eventually.True(t, "more datagrams", func() bool { return s.sent.Load() > sent+3*sockets })
		}
		more()
		answered := s.answered.Load()
		more()
		if n := s.answered.Load() - answered; n > 0 {
			t.Errorf("%d datagrams of an old flow reached the isolated pod that has the address now", n)
		}
	}
}
