package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// TestAffinity: a client keeps its endpoint, also after others came, and gets another one only when its own is gone.
func TestAffinity(t *testing.T) {
	l := newServiceLab(t, nil)
	f := families()[0]
	first := l.endpointOf(f, portSticky, 20000)
	for i := range uint16(100) {
		if got := l.endpointOf(f, portSticky, 20001+i); got != first {
			t.Fatalf("connection %d: %s, not %s", i, l.name(got), l.name(first))
		}
	}
	learned := l.Ofctl("dump-flows", fmt.Sprintf("table=%d", TableAffinity))
	if !strings.Contains(learned, "idle_timeout=3600") || strings.Count(learned, "nw_src=") != 1 {
		t.Errorf("learned:\n%s", learned)
	}
	table := l.table(t)
	set := func(affinity time.Duration, endpoints ...string) {
		t.Helper()
		for _, s := range servicePort(f, portSticky+1, affinity, endpoints...) {
			table.SetFlows(s.Protocol.String(), func() []openflow.Flow { return Service(l.node, s) })
		}
		if _, err := table.Apply(l.Context()); err != nil {
			t.Fatal(err)
		}
		l.purge()
	}
	all := func(what string, from uint16, want *wire) {
		t.Helper()
		for i := range uint16(30) {
			if got := l.endpointOf(f, portSticky+1, from+i); got != want {
				t.Fatalf("%s: %s, not %s", what, l.name(got), l.name(want))
			}
		}
	}
	set(time.Hour, f.pod1)
	all("the only one", 21000, l.pod1)
	set(time.Hour, f.outside, f.peerPod, f.pod1)
	all("one of three", 21100, l.pod1)
	set(time.Hour, f.outside)
	all("the other one", 21200, l.gw)
	set(time.Hour, f.outside, f.peerPod, f.pod1)
	all("the other one, again", 21300, l.gw)
	set(time.Minute, f.pod1)
	all("with another timeout", 21400, l.pod1)
	set(time.Minute, f.pod1, f.outside, f.peerPod)
	all("with another timeout, one of three", 21500, l.pod1)
}

// TestAffinityEnds: a client that begins no connection for the time of the Service is forgotten, also if a connection goes on.
func TestAffinityEnds(t *testing.T) {
	l := newServiceLab(t, nil)
	f := families()[0]
	table := l.table(t)
	for _, s := range servicePort(f, portSticky+1, time.Second, f.pod1) {
		table.SetFlows(s.Protocol.String(), func() []openflow.Flow { return Service(l.node, s) })
	}
	if _, err := table.Apply(l.Context()); err != nil {
		t.Fatal(err)
	}
	send := func(sport uint16) {
		p := l.udpProbe(f.pod0, f.service, sport, portSticky+1)
		l.fromPod(0, l.node.GatewayMAC, p)
		l.comes("datagram", p, l.pod1, 64)
	}
	learned := func() int {
		return strings.Count(l.Ofctl("dump-flows", fmt.Sprintf("table=%d", TableAffinity)), "nw_src=")
	}
	send(7000)
	p := l.udpProbe(f.pod1, f.pod0, portEndpoint, 7000)
	l.fromPod(1, l.node.GatewayMAC, p)
	l.comes("answer", p, l.pod0, 64)
	if learned() != 1 {
		t.Fatal("the client is not remembered")
	}
	for deadline := time.Now().Add(20 * time.Second); learned() > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the client is remembered while its connection goes on")
		}
		send(7000)
	}
}
