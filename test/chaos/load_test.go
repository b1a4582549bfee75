package chaos

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// The traffic, from one pod to another.
func allowedPairs() [][2]string {
	return [][2]string{{"near", "server"}, {"far", "server"}, {"near", "open"}}
}

func deniedPairs() [][2]string {
	return [][2]string{{"near-denied", "server"}, {"far-denied", "server"}, {"mute", "open"}}
}

// allowed is the traffic of one route that policy allows.
type allowed struct {
	route           traffic.Route
	pings, openings *traffic.Meter
	stream          *traffic.Stream
}

// denied is one kind of traffic that policy denies.
type denied struct {
	name  string
	meter *traffic.Meter
}

// load is the traffic of a lab.
type load struct {
	t   *testing.T
	lab *lab.Lab
	// denying has the denied clients, gauge all other traffic.
	gauge, denying *traffic.Gauge
	allowed        []*allowed
	denied         []denied
	// starts counts the starts of the denied clients.
	starts   int
	arrivals []*traffic.Arrivals
}

// routes are the ways from one pod of each pair to the other one, over both families.
func (l *load) routes(pairs [][2]string, port uint16) []traffic.Route {
	var all []traffic.Route
	for _, p := range pairs {
		for _, f := range model.Families() {
			all = append(all, traffic.Route{
				Name: fmt.Sprintf("%s -> %s IPv%s", p[0], p[1], f),
				From: l.pod(p[0]).Namespace(), To: netip.AddrPortFrom(l.pod(p[1]).Address(f), port),
			})
		}
	}
	return all
}

func (l *load) pod(name string) *lab.Pod {
	return l.lab.Pod(model.PodID{Namespace: "x", Name: name})
}

// watchArrivals counts the packets of denied clients at the servers. There is no policy yet: a
// packet of each client and kind has to be counted once, or the count would prove nothing.
func (l *load) watchArrivals() {
	l.t.Helper()
	clients := map[string][]netip.Addr{}
	for _, p := range deniedPairs() {
		clients[p[1]] = append(clients[p[1]], l.pod(p[0]).Addresses()...)
	}
	for server, senders := range clients {
		a, err := traffic.Watch(l.pod(server).Namespace(), "eth0", senders...)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() {
			if err := a.Close(); err != nil {
				l.t.Error(err)
			}
		})
		l.arrivals = append(l.arrivals, a)
	}
	routes := l.routes(deniedPairs(), 80)
	eventually.True(l.t, "packets of all clients at the servers, without a policy", func() bool {
		for _, r := range routes {
			if err := l.gauge.Once(r, controlPort); err != nil {
				l.t.Fatal(err)
			}
		}
		arrived, err := l.leaks(time.Time{})
		if err != nil {
			l.t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, a := range arrived {
			seen[a.Protocol+" "+a.From.Addr().String()] = true
		}
		return len(seen) == 2*len(routes)
	})
}

// leaks are the packets of denied clients that reached a server after a time.
func (l *load) leaks(since time.Time) ([]traffic.Arrival, error) {
	var all []traffic.Arrival
	var errs []error
	for _, a := range l.arrivals {
		arrived, err := a.Since(since)
		all, errs = append(all, arrived...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// servers are the addresses of the servers of denied clients, with their namespaces.
func (l *load) servers(port uint16) map[netip.AddrPort]*namespace.Namespace {
	all := map[netip.AddrPort]*namespace.Namespace{}
	for _, p := range deniedPairs() {
		for _, a := range l.pod(p[1]).Addresses() {
			all[netip.AddrPortFrom(a, port)] = l.pod(p[1]).Namespace()
		}
	}
	return all
}

// startTraffic starts allowed traffic, and the servers of denied clients.
func (l *load) startTraffic() {
	l.t.Helper()
	must := func(err error) {
		if err != nil {
			l.t.Fatal(err)
		}
	}
	for _, r := range l.routes(allowedPairs(), 80) {
		pings, err := l.gauge.Pings(r)
		must(err)
		stream, err := l.gauge.Stream(r, streamPatience)
		must(err)
		l.allowed = append(l.allowed, &allowed{route: r, pings: pings, openings: l.gauge.Openings(r), stream: stream})
	}
	for at, ns := range l.servers(slowPort) {
		must(l.gauge.SlowServer(ns, at, slowBy))
	}
	for at, ns := range l.servers(knockPort) {
		must(l.gauge.Forgetful(ns, at))
	}
}

// Each start of the denied clients takes its source ports from another range.
const (
	firstPort  = 21000
	portRanges = 15
	rangePorts = 2900
)

// portRange returns the first and the last source port of the denied clients at a start.
func portRange(start int) (first, last int) {
	first = firstPort + start%portRanges*rangePorts
	return first, first + rangePorts - 1
}

// startDenied starts the denied clients, in the place of earlier ones, with other source
// ports. A flow that policy has allowed for a time may go on afterwards, and a later row would
// count it: also the packets of a new socket with the port of such a flow, because conntrack
// knows a flow by its addresses and ports alone.
func (l *load) startDenied() {
	l.t.Helper()
	if l.denying != nil {
		l.denying.Stop()
	}
	first, last := portRange(l.starts)
	l.starts++
	for _, p := range deniedPairs() {
		if err := l.pod(p[0]).Namespace().Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", fmt.Appendf(nil, "%d %d", first, last), 0o644)
		}); err != nil {
			l.t.Fatal(err)
		}
	}
	l.denying, l.denied = traffic.NewGauge(l.t.Context()), nil
	for port, name := range map[uint16]string{80: "UDP ", slowPort: "UDP to a slow server "} {
		for _, r := range l.routes(deniedPairs(), port) {
			m, err := l.denying.Datagrams(r)
			if err != nil {
				l.t.Fatal(err)
			}
			l.denied = append(l.denied, denied{name: name + r.Name, meter: m})
		}
	}
	for _, r := range l.routes(deniedPairs(), 80) {
		l.denied = append(l.denied, denied{name: "UDP from new sockets " + r.Name, meter: l.denying.NewSockets(r)})
	}
	for _, r := range l.routes(deniedPairs(), knockPort) {
		l.denied = append(l.denied, denied{name: "TCP " + r.Name, meter: l.denying.Knocks(r)})
	}
}
