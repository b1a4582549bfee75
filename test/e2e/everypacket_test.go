package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/everykind"
	"github.com/felixlike/felixlike/test/lab"
)

// nothing isolates x/a in both directions.
const nothing = `
{kind: NetworkPolicy, metadata: {namespace: x, name: nothing}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress, Egress]}}
`

// everyEnd is an end of packets of every kind: its wire, and where its own packets go first.
type everyEnd struct {
	wire      *everykind.Wire
	mac, next net.HardwareAddr
	address   map[model.Family]netip.Addr
}

func newEveryEnd(t *testing.T, ns *namespace.Namespace, name string, next net.HardwareAddr, address func(model.Family) netip.Addr) *everyEnd {
	t.Helper()
	e := &everyEnd{next: next, address: map[model.Family]netip.Addr{}}
	if err := ns.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		e.mac = link.HardwareAddr
		e.wire, err = everykind.Open(name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.wire.Close() })
	for _, f := range model.Families() {
		e.address[f] = address(f)
	}
	return e
}

// everyRound is one way of packets of every kind.
type everyRound struct {
	what    string
	first   uint32
	packets []everykind.Packet
	to      *everyEnd
	// source is the one that they must arrive with; those that may not arrive have none.
	source netip.Addr
}

// everyRounds are the packets of a test. All have numbers of their own, so that one that is late counts for its own round.
type everyRounds struct {
	t      *testing.T
	rounds []*everyRound
	next   uint32
	marker uint32
	// passes, if it is not nil, reports whether a packet may arrive in any case.
	passes func(everykind.Packet) bool
}

// markersFrom is the first number of a marker.
const markersFrom = 1 << 31

// paced is the number of packets between two markers. More that differ would overflow the queue of a switch that learns each.
const paced = 64

// send sends packets of every kind from an end to another. The markers, which nothing denies, go from a third end to a fourth: their way joins that
// of the packets.
func (r *everyRounds) send(what string, f model.Family, from, to, third, fourth *everyEnd, source netip.Addr) {
	r.t.Helper()
	kind := map[model.Family]uint16{model.IPv4: everykind.IPv4, model.IPv6: everykind.IPv6}[f]
	round := &everyRound{what: fmt.Sprintf("%s, IPv%s", what, f), first: r.next, to: to, source: source}
	round.packets = everykind.Packets(from.address[f], to.address[f], r.next, 255, 64)
	r.next += uint32(len(round.packets))
	r.rounds = append(r.rounds, round)
	await := func() {
		r.t.Helper()
		r.marker++
		_, packet := udpPacket(third.address[f], fourth.address[f], markerPort, string(everykind.Mark(markersFrom+r.marker)))
		if err := fourth.wire.Await(third.wire, markersFrom+r.marker, ethernet(third.mac, third.next, kind, packet)); err != nil {
			r.t.Fatalf("%s: %v", round.what, err)
		}
	}
	for chunk := range slices.Chunk(round.packets, paced) {
		var frames [][]byte
		for _, p := range chunk {
			frames = append(frames, ethernet(from.mac, from.next, kind, p.Bytes))
		}
		if err := from.wire.Send(frames, to.wire); err != nil {
			r.t.Fatal(err)
		}
		await()
	}
	await()
}

// judge checks what has arrived at the ends since the last call. It returns the rounds of which too few packets have come.
func (r *everyRounds) judge(ends ...*everyEnd) (few []string) {
	r.t.Helper()
	come := map[*everyRound]int{}
	for _, e := range ends {
		arrived, err := e.wire.Take()
		if err != nil {
			r.t.Fatal(err)
		}
		for number, frame := range arrived {
			for _, round := range r.rounds {
				if round.to != e || number < round.first || number >= round.first+uint32(len(round.packets)) {
					continue
				}
				come[round]++
				p := round.packets[number-round.first]
				if r.passes != nil && r.passes(p) {
					continue
				}
				if got := everykind.Source(frame); got != round.source {
					r.t.Errorf("%s: %s arrived from %s, want from %s", round.what, p, got, round.source)
				}
			}
		}
	}
	for _, round := range r.rounds {
		// Of all protocols, conntrack knows no more than some types of ICMP not.
		if round.source.IsValid() && come[round] < 400 {
			few = append(few, fmt.Sprintf("%s: only %d of %d packets arrived", round.what, come[round], len(round.packets)))
		}
	}
	r.rounds = nil
	return few
}

// everyPacket has pod a and a host outside the cluster send packets of all protocols and types of ICMP. From and to a pod that allows nothing, none
// passes. Else the outside sees no other source than that of the node, or of the Egress.
func everyPacket(t *testing.T, l *lab.Lab) {
	node := l.Pod(pod("a")).Node()
	pods := map[string]*everyEnd{}
	for _, name := range []string{"a", "b", "c"} {
		p := l.Pod(pod(name))
		pods[name] = newEveryEnd(t, p.Namespace(), "eth0", gatewayMAC(t, p.Node()), p.Address)
	}
	uplink := newEveryEnd(t, node.Namespace(), "eth0", nil, node.Address)
	host := func(address string) *everyEnd {
		far, _, err := l.Host("ip:"+address, model.IPv4)
		if err != nil {
			t.Fatal(err)
		}
		return newEveryEnd(t, far, "br0", uplink.mac, func(f model.Family) netip.Addr {
			_, a, err := l.Host("ip:"+address, f)
			if err != nil {
				t.Fatal(err)
			}
			return a
		})
	}
	outside, other := host("203.0.113.9"), host("203.0.113.11")
	a, b, c := pods["a"], pods["b"], pods["c"]
	r := &everyRounds{t: t, next: 1}
	set(t, l, state(t, threeNodes, nothing))
	none := netip.Addr{}
	for _, f := range model.Families() {
		r.send("isolated, to the pod beside", f, a, b, c, b, none)
		r.send("isolated, to a pod of another node", f, a, c, b, c, none)
		r.send("isolated, to the outside", f, a, outside, b, outside, none)
		r.send("isolated, from the pod beside", f, b, a, b, other, none)
		r.send("isolated, from a pod of another node", f, c, a, c, b, none)
		r.send("isolated, from the outside", f, other, a, other, b, none)
	}
	r.judge(a, b, c, outside, other)
	for _, policies := range []string{threeNodes, threeNodes + "---" + egresses} {
		set(t, l, state(t, policies))
		// A busy machine loses some packets, and a way that is closed all of them, each time.
		few := []string{"not tried"}
		for range 3 {
			if len(few) == 0 {
				break
			}
			for _, f := range model.Families() {
				what, want := "masqueraded", node.Address(f)
				if policies != threeNodes {
					what, want = "with an Egress", egressOf(f)
				}
				r.send(what, f, a, outside, b, outside, want)
			}
			if few = r.judge(outside); len(few) > 0 {
				t.Logf("again: %v", few)
			}
		}
		if len(few) > 0 {
			t.Error(few)
		}
		outside = host("203.0.113.10") // connections keep the source that they began with
	}
}

// egressOf is the address of the Egress in egresses.
func egressOf(f model.Family) netip.Addr {
	if f == model.IPv4 {
		return netip.MustParseAddr("192.168.50.100")
	}
	return netip.MustParseAddr("fd00:10::c0a8:3264")
}

// forwardDrop sets the policy of FORWARD to DROP in both variants of iptables, as Docker does in one. Pods reach one another and the outside as before.
func forwardDrop(t *testing.T, l *lab.Lab) {
	node := l.Node("node1")
	set(t, l, state(t, threeNodes))
	for _, variant := range []string{"legacy", "nft"} {
		for _, tool := range []string{"iptables-", "ip6tables-"} {
			shell(t, node, tool+variant+" -P FORWARD DROP && "+tool+variant+" -N DOCKER-USER") // the size of the legacy variant's table is watched
			eventually.True(t, "the rules of FORWARD in "+tool+variant, func() bool {
				return strings.Count(shell(t, node, tool+variant+" -S FORWARD"), "felixlike packets of pods") == 2
			})
		}
	}
	expect(t, l, true, "x/a", "x/b", model.TCP, 80)
	expect(t, l, true, "x/a", "x/c", model.TCP, 80)
	for _, f := range model.Families() {
		expectSource(t, l, newOutsideHost(t, l, "203.0.113.12", f), "a", node.Address(f).String())
	}
	forwardWall(t, l)
}

// forwardWall: another program's chain drops what the host forwards. Status, readiness and a trace name it, soon after it comes.
func forwardWall(t *testing.T, l *lab.Lab) {
	node := l.Node("node1")
	trace := func() string {
		out, errs, _ := felixctl(t, "trace", "--socket", node.ControlSocket(), "--from", "x/a", "--to", "203.0.113.12", "--port", "80/tcp")
		return out + errs
	}
	if text := trace(); !strings.Contains(text, "ALLOWED") {
		t.Errorf("the trace before:\n%s", text)
	}
	shell(t, node, `nft 'table inet wall { chain passing { type filter hook forward priority 10; policy drop; }; }'`)
	const chain = "chain passing of table inet wall"
	eventually.True(t, "status names the chain", func() bool {
		s, err := node.Status(t.Context())
		return err == nil && slices.ContainsFunc(s.Problems, func(p model.Problem) bool { return strings.Contains(p.Reason, chain) })
	})
	for _, want := range []string{"DENIED", "by " + chain + " of another program", "a firewall of another program drops packets of pods at FORWARD"} {
		if text := trace(); !strings.Contains(text, want) {
			t.Errorf("the trace does not say %q:\n%s", want, text)
		}
	}
	shell(t, node, "nft delete table inet wall")
	eventually.True(t, "status is well again", func() bool {
		s, err := node.Status(t.Context())
		return err == nil && !slices.ContainsFunc(s.Problems, func(p model.Problem) bool { return strings.Contains(p.Reason, chain) })
	})
	expect(t, l, true, "x/a", "x/c", model.TCP, 80)
}
