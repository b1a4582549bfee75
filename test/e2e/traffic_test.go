package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// pushPort is the port of the servers that push.
const pushPort = 9000

// running is traffic between the pods of a lab.
type running struct{ *traffic.Traffic }

// startTraffic starts streams and new connections for each allowed pair of
// pods, and attempts for each denied one, over both families, to port 80.
func startTraffic(t *testing.T, l *lab.Lab, allowed, denied [][2]string) *running {
	t.Helper()
	o := traffic.Options{
		Streams: routes(l, allowed, 80), Denied: routes(l, denied, 80),
		Explain:  func(err error) string { return whereabouts(l, err) },
		HalfOpen: func(r traffic.Route, port int) bool { return halfOpen(l, r, port) },
	}
	o.Opened = o.Streams
	if emulated() {
		o.Patience, o.Pause = time.Minute, 50*time.Millisecond
	}
	tr := &running{traffic.Start(t.Context(), o)}
	t.Cleanup(func() { _, _ = tr.Stop() }) // the first Stop returns the faults
	return tr
}

// halfOpen reports whether the pod at the end of a route has a connection from the port that has no other end. One from there that is being
// opened is not established at the pod.
func halfOpen(l *lab.Lab, r traffic.Route, port int) bool {
	var client netip.Addr
	var server *lab.Pod
	for _, p := range l.State().Pods {
		at := l.Pod(model.PodID{Namespace: p.Namespace, Name: p.Name})
		switch address := at.Address(model.FamilyOf(r.To.Addr())); {
		case at.Namespace() == r.From:
			client = address
		case address == r.To.Addr():
			server = at
		}
	}
	if server == nil {
		return false
	}
	var out []byte
	err := server.Namespace().Do(func() (err error) {
		out, err = exec.Command("ss", "-tnH", "state", "established", fmt.Sprintf("( sport = :%d and dport = :%d and dst [%s] )", r.To.Port(), port, client)).Output()
		return err
	})
	return err == nil && len(out) > 0
}

// routes are the ways from one pod of each pair to a port of the other, over both
// families.
func routes(l *lab.Lab, pairs [][2]string, port uint16) []traffic.Route {
	var all []traffic.Route
	for _, f := range model.Families() {
		for _, p := range pairs {
			all = append(all, traffic.Route{
				Name: fmt.Sprintf("%s -> %s IPv%s", p[0], p[1], f),
				From: l.Pod(pod(p[0])).Namespace(), To: netip.AddrPortFrom(l.Pod(pod(p[1])).Address(f), port),
			})
		}
	}
	return all
}

// startQuiet opens connections that say little, for each pair of pods over both
// families: idle ones, and some on which only the server speaks.
func (tr *running) startQuiet(t *testing.T, l *lab.Lab, pairs [][2]string) {
	t.Helper()
	for _, r := range routes(l, pairs, 80) {
		if err := tr.Idle(r); err != nil {
			t.Fatal(err)
		}
	}
	served := map[netip.AddrPort]bool{}
	for i, r := range routes(l, pairs, pushPort) {
		server := l.Pod(pod(pairs[i%len(pairs)][1])).Namespace()
		if served[r.To] {
			if err := tr.Listen(r); err != nil {
				t.Fatal(err)
			}
			continue
		}
		served[r.To] = true
		if err := tr.Push(server, r); err != nil {
			t.Fatal(err)
		}
	}
}

// stop ends the traffic, prints its summary, and fails the test for every
// fault.
func (tr *running) stop(t *testing.T) traffic.Summary {
	t.Helper()
	sum, err := tr.Stop()
	t.Log(sum)
	if err != nil {
		t.Error(err)
	}
	if most := 1 + sum.Opened/10000; sum.HalfOpen > most {
		t.Errorf("%d new connections waited for a half-open one, at most %d may", sum.HalfOpen, most)
	}
	if sum.Blocks == 0 || sum.Opened == 0 || sum.Denied == 0 {
		t.Error("a kind of traffic never got going")
	}
	return sum
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
