package e2e

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// markersOnly isolates x/a but for datagrams to markerPort.
const markersOnly = `
{kind: NetworkPolicy, metadata: {namespace: x, name: markers-only}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress],
  ingress: [{ports: [{port: 4242, protocol: UDP}]}]}}
`

// deniedPort is a port of x/a that markersOnly denies.
const deniedPort = 4243

// TestEstablishedStateIsNotForged: pods of two nodes send packets that policy denies, as if they were of a connection that
// it allowed: TCP segments from the middle of a connection, with marks, as the answer to a packet that was not sent
// yet, and with the addresses and ports of a connection of another pod. None arrives.
func TestEstablishedStateIsNotForged(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, _ string) {
		set(t, l, state(t, threeNodes, markersOnly))
		for _, from := range []string{"b", "c"} {
			for _, f := range model.Families() {
				newAbuser(t, l, from, f).abuse(t)
			}
		}
		everyPacket(t, l)
		forwardDrop(t, l)
	})
}

// abuser is a pod that sends to the pod x/a.
type abuser struct {
	lab            *lab.Lab
	name           string
	family         model.Family
	own, victim    *lab.Pod
	out, in        *wire
	source, denied netip.AddrPort
}

func newAbuser(t *testing.T, l *lab.Lab, name string, f model.Family) *abuser {
	t.Helper()
	own, victim := l.Pod(pod(name)), l.Pod(pod("a"))
	return &abuser{
		lab: l, name: name, family: f, own: own, victim: victim,
		out: openWire(t, own.Namespace(), "eth0"), in: openWire(t, victim.Namespace(), "eth0"),
		source: netip.AddrPortFrom(own.Address(f), senderPort), denied: netip.AddrPortFrom(victim.Address(f), deniedPort),
	}
}

// frame wraps a packet of the pod.
func (a *abuser) frame(t *testing.T, kind uint16, packet []byte) []byte {
	t.Helper()
	return ethernet(podMAC(t, a.own), gatewayMAC(t, a.own.Node()), kind, packet)
}

// through sends a packet, and reports whether it arrives.
func (a *abuser) through(t *testing.T, text string, kind uint16, packet []byte) bool {
	t.Helper()
	frame := a.frame(t, kind, packet)
	send := func() { a.out.send(frame) }
	for range 2 {
		if arrives(t, a.in, send, func(got []byte) bool { return bytes.Contains(got, []byte(text)) }, func(marker string) {
			kind, packet := udpPacket(a.own.Address(a.family), a.victim.Address(a.family), markerPort, marker)
			a.out.send(a.frame(t, kind, packet))
		}) {
			return true
		}
		// A marker that follows a cached flow may overtake a packet for which the switch makes one.
		send = func() {}
	}
	return false
}

func (a *abuser) abuse(t *testing.T) {
	t.Helper()
	what := func(format string, args ...any) string {
		return fmt.Sprintf("%s to a, IPv%s: %s", a.name, a.family, fmt.Sprintf(format, args...))
	}
	const fin, syn, rst, psh, ack = 0x01, 0x02, 0x04, 0x08, 0x10
	for _, flags := range []byte{0, ack, psh | ack, fin | ack, syn | ack, syn, rst, rst | ack, syn | fin} {
		text := what("segment with flags %#02x.", flags)
		kind, packet := tcpSegment(a.source, a.denied, flags, text)
		for range 2 {
			if a.through(t, text, kind, packet) {
				t.Error(text, "it arrived")
			}
		}
	}
	for _, mark := range []int{0x08000000, 0x20000000, 0x40000000, -1} {
		if err := unix.SetsockoptInt(a.out.fd, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
			t.Fatal(err)
		}
		text := what("datagram with mark %#x.", uint32(mark))
		if kind, packet := udpDatagram(a.source, a.denied, text); a.through(t, text, kind, packet) {
			t.Error(text, "it arrived")
		}
	}
	if err := unix.SetsockoptInt(a.out.fd, unix.SOL_SOCKET, unix.SO_MARK, 0); err != nil {
		t.Fatal(err)
	}
	a.answerFirst(t, what)
	a.inTheNameOfAnother(t, what)
}

// answerFirst sends an answer before the packet that it answers, and after it.
func (a *abuser) answerFirst(t *testing.T, what func(string, ...any) string) {
	t.Helper()
	source := netip.AddrPortFrom(a.source.Addr(), senderPort+1)
	for range 3 {
		text := what("answer before the question.")
		if kind, packet := udpDatagram(source, a.denied, text); a.through(t, text, kind, packet) {
			t.Error(text, "it arrived")
		}
	}
	asked := openWire(t, a.own.Namespace(), "eth0")
	back := openWire(t, a.victim.Namespace(), "eth0")
	question := what("question.")
	kind, packet := udpDatagram(a.denied, source, question)
	frame := ethernet(podMAC(t, a.victim), gatewayMAC(t, a.victim.Node()), kind, packet)
	if !comes(asked, func() { back.send(frame) }, func(got []byte) bool { return bytes.Contains(got, []byte(question)) }) {
		t.Error(question, "it did not arrive")
	}
	for range 2 {
		text := what("answer after the question.")
		kind, packet := udpDatagram(source, a.denied, text)
		answer := a.frame(t, kind, packet)
		if !comes(a.in, func() { a.out.send(answer) }, func(got []byte) bool { return bytes.Contains(got, []byte(text)) }) {
			t.Error(text, "it did not arrive")
		}
	}
}

// inTheNameOfAnother sends packets of an allowed, established connection of another pod: that between x/a and this pod
// in answerFirst has the ports.
func (a *abuser) inTheNameOfAnother(t *testing.T, what func(string, ...any) string) {
	t.Helper()
	source := netip.AddrPortFrom(a.source.Addr(), senderPort+1)
	other := map[string]string{"b": "c", "c": "b"}[a.name]
	forger := newAbuser(t, a.lab, other, a.family)
	text := what("forged by %s, of an established connection.", other)
	if kind, packet := udpDatagram(source, a.denied, text); forger.through(t, text, kind, packet) {
		t.Error(text, "it arrived")
	}
}
