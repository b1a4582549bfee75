package pipeline

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// TestPortsOfTheGateway: the host has begun a connection, and its first packet did not leave, since the flows
// of policy were missing. A pod's packet with the same ports is judged at its destination. It does not go to
// the host as if it were an answer, to be allowed on its way there.
func TestPortsOfTheGateway(t *testing.T) {
	l := newLab(t, nil)
	judging := "table=110,priority=240,ip,reg0=0x10000/0x4010000"
	l.fence() // of allowed connections from now on
	l.Run("ovs-ofctl", "-O", "OpenFlow15", "--strict", "del-flows", "unix:"+l.Management(), judging)
	p := l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 2000)
	l.fromGateway(l.pods[1].MAC, p)
	l.nowhere("without policy", p)
	for _, f := range []string{judging + " actions=set_field:0x4000000/0x4000000->reg0,resubmit(,110)", closed1().String()} {
		l.Run("ovs-ofctl", "-O", "OpenFlow15", "add-flow", "unix:"+l.Management(), f)
	}
	p = l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 2000)
	l.fromPod(0, l.pods[1].MAC, p)
	l.nowhere("denied", p)
}

// TestOpenWithoutPolicy: flows that the agent removes on purpose do not close the node.
func TestOpenWithoutPolicy(t *testing.T) {
	l := newLab(t, nil)
	l.Run("ovs-ofctl", "-O", "OpenFlow15", "--strict", "del-flows", "unix:"+l.Management(), "table=110,priority=240,ip,reg0=0x10000/0x4010000")
	conn, err := openflow.Dial(l.Context(), l.Management())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := len(l.Flows())
	if err := conn.Bundle(l.Context(), func(yield func(openflow.FlowMod, error) bool) {
		for _, change := range OpenWithoutPolicy() {
			if !yield(change, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if gone := before - len(l.Flows()); gone != 4 {
		t.Errorf("%d flows are removed, want two a family", gone)
	}
	p := l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 2000)
	l.fromPod(0, l.pods[1].MAC, p)
	l.comes("without policy", p, l.pod1, 64)
}

// unreachable makes an ICMP error about a packet, from a router to its sender.
func (l *lab) unreachable(from, to string, about probe) probe {
	body := append([]byte{3, 4, 0, 0, 0, 0, 5, 0x14}, about.packet()...)
	proto := uint8(1)
	if netip.MustParseAddr(from).Is6() {
		proto = 58
		body = binary.BigEndian.AppendUint32([]byte{2, 0, 0, 0}, 1300)
		body = append(body, about.packet()...)
	}
	return probe{src: from, dst: to, proto: proto, body: body, mark: about.mark}
}
