package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// rejecting rejects all packets from pods to x/a, and all that x/a sends.
const rejecting = `
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy,
  metadata: {name: reject, annotations: {felixlike.io/deny-action: reject}}, spec: {tier: Admin, priority: 1,
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: a}}}},
  ingress: [{action: Deny, from: [{namespaces: {}}]}],
  egress: [{action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]}}
`

// TestReject: clients of a rejecting policy get an error at once, on the same node, on
// another node, to the outside, and through Services. Nobody else gets an answer, and a
// flood gets a bounded number. Under openflow the agent answers: without it, packets are dropped.
func TestReject(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, backend string) {
		set(t, l, state(t, threeNodes))
		expect(t, l, true, "x/b", "ip:"+stranger, model.TCP, 80)
		expect(t, l, true, "x/b", "x/a", model.TCP, 80)
		runProxy(t, l, proxyModes()["nftables"])
		echoIn(t, l.Node("node1").Namespace(), "7778")
		set(t, l, state(t, threeNodes, rejecting))
		ownNodeIsRejected(t, l, backend)
		for _, f := range model.Families() {
			tcpIsReset(t, l, f)
			udpIsProhibited(t, l, f)
			othersGetNoAnswer(t, l, f)
		}
		rejectedIsCounted(t, l, floodIsBounded(t, l))
		expect(t, l, true, "x/b", "x/c", model.TCP, 80)
		if backend == config.OpenFlow {
			dropsWithoutAgent(t, l)
		}
		set(t, l, state(t, threeNodes))
		expect(t, l, true, "x/b", "x/a", model.TCP, 80)
	})
}

// ownNodeIsRejected expects that x/a does not reach its own node, and gets an answer from nftables.
func ownNodeIsRejected(t *testing.T, l *lab.Lab, backend string) {
	t.Helper()
	want, timeout := unix.ECONNREFUSED, patience
	if backend != config.NFTables && backend != config.OpenFlow {
		want, timeout = unix.ETIMEDOUT, probeTimeout
	}
	for _, f := range model.Families() {
		_, err := traffic.Connect(l.Pod(pod("a")).Namespace(), netip.Addr{}, netip.AddrPortFrom(l.Node("node1").Address(f), 7778), timeout)
		if !errors.Is(err, want) {
			t.Errorf("a -> its own node over IPv%s: %v, want %v", f, err, want)
		}
	}
}

// dropsWithoutAgent expects that the policy denies while the agent does not run, and that nobody answers.
func dropsWithoutAgent(t *testing.T, l *lab.Lab) {
	t.Helper()
	n := l.Node("node1")
	if err := n.KillAgent(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.StartAgent(); err != nil {
			t.Fatal(err)
		}
	}()
	for _, f := range model.Families() {
		for from, to := range map[string]string{"b": "a", "a": "b"} {
			_, err := traffic.Connect(l.Pod(pod(from)).Namespace(), netip.Addr{}, netip.AddrPortFrom(l.Pod(pod(to)).Address(f), 80), probeTimeout)
			if !errors.Is(err, unix.ETIMEDOUT) {
				t.Errorf("%s -> %s over IPv%s: %v, want no answer", from, to, f, err)
			}
		}
	}
}

func tcpIsReset(t *testing.T, l *lab.Lab, f model.Family) {
	t.Helper()
	reset := func(what string, from *namespace.Namespace, to netip.AddrPort) {
		t.Helper()
		_, err := traffic.Connect(from, netip.Addr{}, to, patience)
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s over IPv%s: %v, want a reset", what, f, err)
		}
	}
	for _, w := range [][2]string{{"b", "a"}, {"c", "a"}, {"a", "b"}, {"a", "c"}} {
		reset(w[0]+" -> "+w[1], l.Pod(pod(w[0])).Namespace(), netip.AddrPortFrom(l.Pod(pod(w[1])).Address(f), 80))
	}
	reset("to the outside", l.Pod(pod("a")).Namespace(), netip.AddrPortFrom(mapTo(f, stranger), 80))
	for _, w := range denied("b -> a", "c -> a", "a -> b", "a -> c", "c -> node1:a", "a -> node1:c") {
		to, err := w.target(l, f)
		if err != nil {
			t.Fatal(err)
		}
		reset("through a Service, "+w.from+" -> "+w.to, l.Pod(pod(w.from)).Namespace(), to)
	}
}

func udpIsProhibited(t *testing.T, l *lab.Lab, f model.Family) {
	t.Helper()
	want := unix.EHOSTUNREACH // ICMP type 3, code 13
	if f == model.IPv6 {
		want = unix.EACCES // ICMPv6 type 1, code 1
	}
	for _, w := range [][2]string{{"b", "a"}, {"c", "a"}, {"a", "b"}, {"a", "c"}} {
		if err := udpError(l.Pod(pod(w[0])).Namespace(), netip.AddrPortFrom(l.Pod(pod(w[1])).Address(f), 80)); !errors.Is(err, want) {
			t.Errorf("%s -> %s over IPv%s: %v, want %v", w[0], w[1], f, err, want)
		}
	}
}

// udpError sends datagrams until an answer or an error comes. Several: the kernel bounds the
// ICMP errors to one host.
func udpError(from *namespace.Namespace, to netip.AddrPort) error {
	var conn net.Conn
	if err := from.Do(func() (err error) { conn, err = net.Dial("udp", to.String()); return err }); err != nil {
		return err
	}
	defer conn.Close()
	answer := make([]byte, 1)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return err
		}
		switch _, err := conn.Read(answer); {
		case err == nil:
			return errors.New("it was answered")
		case !errors.Is(err, unix.EAGAIN) && !isTimeout(err):
			return err
		}
	}
	return unix.ETIMEDOUT
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// othersGetNoAnswer sends packets that must not be answered: a reset, and a SYN with the
// source of another pod. A SYN behind each of them is answered, and would be so later.
func othersGetNoAnswer(t *testing.T, l *lab.Lab, f model.Family) {
	t.Helper()
	const syn, rst, lie, honest = 2, 4, 0x7a01, 0x7a02
	a, b, c := l.Pod(pod("a")), l.Pod(pod("b")), l.Pod(pod("c"))
	atB, atC := openWire(t, b.Namespace(), "eth0"), openWire(t, c.Namespace(), "eth0")
	send := func(out *wire, from *lab.Pod, source netip.Addr, port uint16, flags byte) {
		tcp := make([]byte, 20)
		binary.BigEndian.PutUint16(tcp, port)
		tcp[3], tcp[12], tcp[13] = 80, 5<<4, flags
		kind, packet := ip(source, a.Address(f), unix.IPPROTO_TCP, 64, tcp, 16)
		out.send(ethernet(podMAC(t, from), gatewayMAC(t, from.Node()), kind, packet))
	}
	for _, test := range []struct {
		name  string
		at    *wire
		of    *lab.Pod
		flags byte
	}{{"a reset", atB, b, rst}, {"a forged source", atC, c, syn}} {
		answer := func(port uint16) []byte {
			ends := slices.Concat(a.Address(f).AsSlice(), test.of.Address(f).AsSlice())
			return binary.BigEndian.AppendUint16(append(ends, 0, 80), port)
		}
		send(atB, b, test.of.Address(f), lie, test.flags)
		if got := test.at.first(func() { send(test.at, test.of, test.of.Address(f), honest, syn) }, answer(lie), answer(honest)); got != 1 {
			t.Errorf("%s over IPv%s: frame %d came first, want only an answer to the honest SYN", test.name, f, got)
		}
	}
}

// first returns which content came first in a frame, -1 if none came. It sends again and
// again.
func (w *wire) first(send func(), contents ...[]byte) int {
	w.t.Helper()
	for range 10 {
		send()
		deadline := time.Now().Add(time.Second)
		for frame := w.next(deadline); frame != nil; frame = w.next(deadline) {
			for i, content := range contents {
				if bytes.Contains(frame, content) {
					return i
				}
			}
		}
	}
	return -1
}

// rejectedIsCounted expects that the metric has at least these packets that x/a rejected.
func rejectedIsCounted(t *testing.T, l *lab.Lab, sent int) {
	t.Helper()
	if got := metric(t, l.Pod(pod("a")).Node(), policyMetric("deny")); got < float64(sent) {
		t.Errorf("the metric has %v denied packets, want %d at least", got, sent)
	}
}

// floodIsBounded sends many SYNs, counts the resets, and returns the number of SYNs.
func floodIsBounded(t *testing.T, l *lab.Lab) int {
	t.Helper()
	const sent = 5000
	a, b := l.Pod(pod("a")), l.Pod(pod("b"))
	out := openWire(t, b.Namespace(), "eth0")
	frame := synFrames(ethernet(podMAC(t, b), gatewayMAC(t, b.Node()), etherIPv4, nil), b.Address(model.IPv4), a.Address(model.IPv4))
	ends := slices.Concat(a.Address(model.IPv4).AsSlice(), b.Address(model.IPv4).AsSlice())
	began, resets := time.Now(), 0
	count := func(wait time.Duration) {
		for {
			got := out.next(time.Now().Add(wait))
			if got == nil {
				return
			}
			if bytes.Contains(got, ends) {
				resets++
			}
		}
	}
	for n := range sent {
		out.send(frame(n))
		if n%50 == 0 {
			count(time.Millisecond)
		}
	}
	count(time.Second)
	took := time.Since(began)
	bound := int(rules.AnswersPerSecond * (1 + took.Seconds()))
	text := fmt.Sprintf("%d SYNs in %v got %d resets, at most %d expected", sent, took.Round(time.Millisecond), resets, bound)
	t.Log(text)
	if resets == 0 || resets > bound {
		t.Error(text)
	}
	return sent
}
