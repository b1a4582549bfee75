package carry

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// TestBegunTheOtherWayRound: one enforcement point began entries with a packet of
// the server. The other one's entries correct their direction.
func TestBegunTheOtherWayRound(t *testing.T) {
	c, k := kernelNode(t)
	direct := connection(unix.IPPROTO_TCP, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5")
	outside := connection(unix.IPPROTO_TCP, "203.0.113.9:5", "10.10.0.3:80", "10.10.0.3:80", "203.0.113.9:5")
	udp := connection(unix.IPPROTO_UDP, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5")
	var puts []conntrack.Put
	for _, one := range []conntrack.Connection{direct, outside, udp} {
		puts = append(puts, inKernel(one))
		one.Original, one.Reply = one.Reply, one.Original
		puts = append(puts, inZone(one))
	}
	write(t, k, puts...)
	if r, err := c.ToSwitch(t.Context()); err != nil || r != (Result{Allowed: 3, Written: 2}) {
		t.Errorf("%+v %v", r, err)
	}
	wantKnown(t, k, pipeline.Zone, direct.Original, outside.Original, udp.Reply)

	// The kernel saw only replies of the first connection, and the whole of the others.
	if _, err := k.Delete([]conntrack.Connection{direct}); err != nil {
		t.Fatal(err)
	}
	met := direct
	met.Original, met.Reply, met.Replied = direct.Reply, direct.Original, false
	write(t, k, inKernel(met))
	if r, err := c.ToKernel(t.Context()); err != nil || r.Allowed != 3 {
		t.Errorf("%+v %v", r, err)
	}
	wantKnown(t, k, 0, direct.Original, outside.Original, udp.Original)
	if r, err := c.ToKernel(t.Context()); err != nil || r != (Result{Allowed: 3}) {
		t.Errorf("once more: %+v %v", r, err)
	}

	// An entry that saw one packet from the middle does not know the client.
	late := inZone(connection(unix.IPPROTO_TCP, "10.10.0.3:80", "10.10.0.2:6", "10.10.0.2:6", "10.10.0.3:80"))
	late.Replied, late.State, late.Liberal = false, conntrack.StateSynSent, true
	open := connection(unix.IPPROTO_TCP, "10.10.0.2:6", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:6")
	write(t, k, late, inKernel(open))
	if _, err := c.ToKernel(t.Context()); err != nil {
		t.Error(err)
	}
	wantKnown(t, k, 0, direct.Original, outside.Original, udp.Original, open.Original)
}

// TestEndedMeanwhile: connections end at the old enforcement point after the new
// one got a copy of them, or saw a late packet of their servers.
func TestEndedMeanwhile(t *testing.T) {
	c, k := kernelNode(t)
	at := func(port string) conntrack.Connection {
		return connection(unix.IPPROTO_TCP, "10.10.0.2:"+port, "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:"+port)
	}
	over := func(k conntrack.Connection, s conntrack.State) conntrack.Connection {
		k.State, k.Timeout = s, time.Minute
		return k
	}
	reported, met, begunAgain := at("1"), at("2"), at("3")
	reported.Liberal, reported.Timeout = true, lifetime(&reported)
	met.Original, met.Reply = met.Reply, met.Original
	for name, way := range map[string]struct {
		from, to func(conntrack.Connection) conntrack.Put
		zone     uint16
		carry    func(context.Context) (Result, error)
	}{
		"to the kernel": {inZone, inKernel, 0, c.ToKernel},
		"to the switch": {inKernel, inZone, pipeline.Zone, c.ToSwitch},
	} {
		write(t, k, way.to(reported), way.to(met), way.to(begunAgain),
			way.from(over(at("1"), conntrack.StateClosed)), way.from(over(at("2"), conntrack.StateTimeWait)), way.from(over(at("3"), conntrack.StateClosed)))
		if r, err := way.carry(t.Context()); err != nil || r != (Result{Ended: 2}) {
			t.Errorf("%s: %+v %v", name, r, err)
		}
		wantKnown(t, k, way.zone, begunAgain.Original)
		command(t, "conntrack", "-F")
	}
}

// TestUnanswered carries connections without an answer there and back.
func TestUnanswered(t *testing.T) {
	c, k := kernelNode(t)
	one := connection(unix.IPPROTO_TCP, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5")
	one.State, one.Replied, one.Timeout = conntrack.StateSynSent, false, 20*time.Second
	write(t, k, inZone(one))
	if r, err := c.ToKernel(t.Context()); err != nil || r != (Result{Allowed: 1, Written: 1}) {
		t.Errorf("%+v %v", r, err)
	}
	wantKnown(t, k, 0, one.Original)
	if err := k.Dump(func(one conntrack.Connection) {
		if one.Zone == 0 && one.Timeout > 20*time.Second {
			t.Errorf("%s got %s more", one.Original, one.Timeout)
		}
	}); err != nil {
		t.Error(err)
	}
	if r, err := c.ToSwitch(t.Context()); err != nil || r != (Result{}) {
		t.Errorf("and back: %+v %v", r, err)
	}
}

// TestForgetInKernel: the switch judges packets, so the kernel needs no entries of
// connections that stay in the bridge.
func TestForgetInKernel(t *testing.T) {
	c, k := kernelNode(t)
	udp := connection(unix.IPPROTO_UDP, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5")
	outside := connection(unix.IPPROTO_TCP, "203.0.113.9:5", "10.10.0.3:80", "10.10.0.3:80", "203.0.113.9:5")
	service := connection(unix.IPPROTO_TCP, "10.10.0.2:5", "10.96.0.10:80", "10.10.0.3:8080", "10.10.0.2:5")
	// Through a NodePort, from the node's address: one established, one without a reply.
	hidden := connection(unix.IPPROTO_TCP, "203.0.113.9:6", node4+":30080", "10.10.0.3:8080", "10.10.0.1:6")
	unanswered := connection(unix.IPPROTO_TCP, "203.0.113.9:7", node4+":30080", "10.10.0.3:8080", "10.10.0.1:7")
	unanswered.State, unanswered.Replied = conntrack.StateSynSent, false
	write(t, k, inKernel(udp), inKernel(outside), inKernel(service), inKernel(hidden), inKernel(unanswered),
		inKernel(connection(unix.IPPROTO_TCP, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5")),
		inKernel(connection(unix.IPPROTO_TCP, "10.10.0.3:80", "10.10.1.2:5", "10.10.1.2:5", "10.10.0.3:80")))
	if n, err := c.ForgetInKernel(t.Context()); err != nil || n != 4 {
		t.Error(n, err)
	}
	wantKnown(t, k, 0, udp.Original, outside.Original, service.Original, hidden.Original)
	if err := k.Dump(func(one conntrack.Connection) {
		if want := one.Original != udp.Original; (one.Mark&rules.MarkAllowed != 0) != want {
			t.Errorf("%+v: marked as allowed, want %v", one, want)
		}
	}); err != nil {
		t.Error(err)
	}
}

// inKernel is an entry of the kernel for an allowed connection, inZone one of the
// pipeline's zone.
func inKernel(k conntrack.Connection) conntrack.Put {
	k.Mark = rules.MarkAllowed
	return conntrack.Put{Connection: k, New: true, MarkMask: rules.MarkAllowed}
}

func inZone(k conntrack.Connection) conntrack.Put {
	k.Zone, k.Label = pipeline.Zone, allowedLabel()
	return conntrack.Put{Connection: k, New: true}
}

func write(t *testing.T, k *conntrack.Kernel, puts ...conntrack.Put) {
	t.Helper()
	if n, err := k.Write(puts); err != nil || n != len(puts) {
		t.Fatalf("wrote %d of %d: %v", n, len(puts), err)
	}
}

// wantKnown asserts which connections live in a zone, by their original directions.
func wantKnown(t *testing.T, k *conntrack.Kernel, zone uint16, want ...conntrack.Tuple) {
	t.Helper()
	got := map[conntrack.Tuple]bool{}
	if err := k.Dump(func(one conntrack.Connection) {
		if one.Zone == zone && alive(&one) {
			got[one.Original] = true
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if !got[w] {
			t.Errorf("zone %d lacks %s", zone, w)
		}
		delete(got, w)
	}
	for left := range got {
		t.Errorf("zone %d has %s", zone, left)
	}
}

// TestPortUsedAgain: the zone has not seen the end of a client's connection. The client's next one from the port waits for its answer in the kernel.
// While packets are led to the host, the zone forgets the old one, and does not learn the next one: the host goes on with it. Afterwards, an answered
// entry is the next one's.
func TestPortUsedAgain(t *testing.T) {
	c, k := kernelNode(t)
	old := connection(unix.IPPROTO_TCP, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5")
	next := old
	next.State, next.Replied = conntrack.StateSynSent, false
	write(t, k, inZone(old), inKernel(next))
	for _, step := range []struct {
		carry func(context.Context) (Result, error)
		want  Result
		known []conntrack.Tuple
	}{
		{c.ToSwitch, Result{Allowed: 1}, []conntrack.Tuple{old.Original}},
		{c.ToSwitchAhead, Result{Ended: 1}, nil},
		{c.ToSwitchAhead, Result{}, nil},
		{c.ToSwitch, Result{Allowed: 1, Written: 1}, []conntrack.Tuple{old.Original}},
	} {
		if r, err := step.carry(t.Context()); err != nil || r != step.want {
			t.Errorf("%+v %v, want %+v", r, err, step.want)
		}
		wantKnown(t, k, pipeline.Zone, step.known...)
	}
}
