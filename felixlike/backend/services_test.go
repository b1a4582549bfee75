package backend

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/eventually"
)

func port(name string, p model.Protocol, frontends ...model.Frontend) *model.ServicePort {
	return &model.ServicePort{ID: model.ServicePortID{Namespace: "shop", Name: name, Protocol: p, Port: 80}, Frontends: frontends}
}

func frontend(kind model.FrontendKind, address string, port uint16, endpoints []model.ServiceEndpoint) model.Frontend {
	return model.Frontend{Kind: kind, Addr: netip.MustParseAddr(address), Port: port, Endpoints: endpoints, Inside: endpoints}
}

func set(ports ...*model.ServicePort) (all []model.Update) {
	for _, p := range ports {
		all = append(all, model.ServicePortUpdate{Port: p})
	}
	return all
}

// TestServices: packets of TCP, UDP and SCTP and of both families, from pods, the node and outside, come to the endpoints of each kind of
// frontend, with the sources that docs/explain/guarantees/always.md says.
func TestServices(t *testing.T) {
	l := newServicesLab(t)
	s := Services(l.config())
	addresses := map[model.Family][4]string{
		model.IPv4: {"10.96.0.1", "192.0.2.1", "192.0.2.2", "0.0.0.0"},
		model.IPv6: {"fd96::1", "fd92::1", "fd92::2", "::"},
	}
	var ports []*model.ServicePort
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		cluster, local, restricted := port("cluster", p), port("local", p), port("restricted", p)
		for f, a := range addresses {
			all, here := l.endpoints(f, "p1", "p2", "remote"), l.endpoints(f, "p1")
			if p == model.SCTP {
				all = l.endpoints(f, "remote")
			}
			cluster.Frontends = append(cluster.Frontends, frontend(model.ClusterIP, a[0], 80, all), frontend(model.ExternalIP, a[1], 80, all), frontend(model.NodePort, a[3], 30080, all))
			for _, e := range []model.Frontend{frontend(model.LoadBalancerIP, a[2], 80, here), frontend(model.NodePort, a[3], 30081, here)} {
				e.Inside, e.Empty = l.endpoints(f, "remote"), model.DropSilently
				local.Frontends = append(local.Frontends, e)
			}
			for i, sources := range [][]string{{"192.168.50.9/32", "192.168.0.0/16", "fd50::9/128", "10.10.0.3/32", "fd10::3/128"}, {"203.0.113.0/24", "2001:db8::/32"}, nil} {
				r := frontend(model.LoadBalancerIP, a[2], uint16(90+i), here)
				r.Sources = []netip.Prefix{}
				for _, p := range sources {
					r.Sources = append(r.Sources, netip.MustParsePrefix(p))
				}
				restricted.Frontends = append(restricted.Frontends, r)
			}
		}
		ports = append(ports, cluster, local, restricted)
	}
	run(t, s, append(l.nodes(), set(ports...)...)...)
	for _, f := range model.Families() {
		a := addresses[f]
		nodeAddress, client, pod, remote, toPeer, own := "192.168.50.1", "192.168.50.9", "10.10.0.2", "10.10.1.2", "192.168.51.1", "10.10.0.1"
		if f == model.IPv6 {
			nodeAddress, client, pod, remote, toPeer, own = "fd50::1", "fd50::9", "fd10::2", "fd11::2", "fd51::1", "fd10::1"
		}
		at := func(address string, port int) string {
			return netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port)).String()
		}
		for _, n := range []string{"tcp", "udp"} {
			// p1 reaches itself with the address of this node.
			inside := []string{"p1 " + own, "p2 " + pod, "remote " + pod}
			l.expect(t, "p1", n, at(a[0], 80), inside...)
			l.expect(t, "p1", n, at(a[1], 80), inside...)
			l.expect(t, "p1", n, at(nodeAddress, 30080), inside...)
			l.expect(t, "node", n, at(a[0], 80), "p1 *", "p2 *", "remote "+toPeer)
			l.expect(t, "node", n, at(nodeAddress, 30080), "p1 *", "p2 *", "remote "+toPeer)
			outside := []string{"p1 " + client, "p2 " + client, "remote " + toPeer}
			l.expect(t, "outside", n, at(a[0], 80), outside...)
			l.expect(t, "outside", n, at(a[1], 80), outside...)
			l.expect(t, "outside", n, at(nodeAddress, 30080), outside...)
			// Policy Local: clients outside reach endpoints of this node, others all; the node too.
			l.expect(t, "outside", n, at(a[2], 80), "p1 "+client)
			l.expect(t, "outside", n, at(nodeAddress, 30081), "p1 "+client)
			l.expect(t, "p1", n, at(a[2], 80), "remote "+pod)
			l.expect(t, "p1", n, at(nodeAddress, 30081), "remote "+pod)
			l.expect(t, "node", n, at(a[2], 80), "remote "+toPeer)
			l.expect(t, "node", n, at(nodeAddress, 30081), "remote "+toPeer)
			// A pod of the peer is a client outside as to policy Local. It sees this node if its endpoint is not here.
			l.expect(t, "remote", n, at(nodeAddress, 30081), "p1 "+remote)
			l.expect(t, "remote", n, at(nodeAddress, 30080), "p1 "+remote, "p2 "+remote, "remote "+toPeer)
			// Source ranges.
			l.expect(t, "outside", n, at(a[2], 90), "p1 "+client)
			l.expect(t, "p2", n, at(a[2], 90), "p1 *")
			for _, port := range []int{91, 92} {
				l.expect(t, "outside", n, at(a[2], port), "dropped")
			}
			l.expect(t, "p1", n, at(a[2], 90), "dropped")
		}
		if f == model.IPv4 {
			l.expect(t, "node", "tcp", "127.0.0.1:30080", "refused")
			l.expect(t, "outside", "udp", "192.168.50.1:30082", "refused")
		} else {
			l.expect(t, "node", "tcp", "[::1]:30080", "refused")
		}
		for from, source := range map[string]string{"p1": pod, "outside": toPeer, "node": toPeer} {
			got, port, arrived := l.association(t, from, "remote", netip.MustParseAddrPort(at(a[0], 80)))
			if !arrived || port != podPort || f == model.IPv4 && got.String() != source {
				t.Errorf("SCTP from %s by IPv%s: arrived %v at port %d from %s, want %s", from, f, arrived, port, got, source)
			}
		}
	}
}

// TestServicesWithoutEndpoints: without any endpoint connections are refused, without one for the client they are dropped; and the
// first endpoint ends both.
func TestServicesWithoutEndpoints(t *testing.T) {
	l := newServicesLab(t)
	s := Services(l.config())
	empty := func(e []model.ServiceEndpoint) []model.Update {
		refused, silent := port("refused", model.TCP), port("silent", model.TCP)
		for f, a := range map[model.Family][3]string{model.IPv4: {"10.96.0.1", "10.96.0.2", "0.0.0.0"}, model.IPv6: {"fd96::1", "fd96::2", "::"}} {
			if e != nil {
				e = l.endpoints(f, "p1")
			}
			refused.Frontends = append(refused.Frontends, frontend(model.ClusterIP, a[0], 80, e), frontend(model.NodePort, a[2], 30080, e))
			drop := frontend(model.ClusterIP, a[1], 80, e)
			drop.Empty = model.DropSilently
			silent.Frontends = append(silent.Frontends, drop)
		}
		u1, u2 := *refused, *silent
		u1.ID.Protocol, u2.ID.Protocol = model.UDP, model.UDP
		return set(refused, silent, &u1, &u2)
	}
	check := func(first, second string) {
		t.Helper()
		for _, n := range []string{"tcp", "udp"} {
			for _, from := range []string{"p2", "node", "outside"} {
				for _, to := range []string{"10.96.0.1:80", "192.168.50.1:30080", "[fd96::1]:80", "[fd50::1]:30080"} {
					if n == "udp" || from == "p2" || to[0] != '[' { // a refused SYN of IPv6 may take a second
						l.expect(t, from, n, to, first)
					}
				}
				l.expect(t, from, n, "10.96.0.2:80", second)
				l.expect(t, from, n, "10.96.0.2:81", "refused")
				if n == "udp" || from == "p2" {
					l.expect(t, from, n, "[fd96::2]:81", "refused")
				}
			}
		}
	}
	run(t, s, append(l.nodes(), empty(nil)...)...)
	check("refused", "dropped")
	if did := run(t, s, empty([]model.ServiceEndpoint{})...); did.Writes == 0 {
		t.Errorf("the first endpoints: %+v", did)
	}
	check("p1 *", "p1 *")
	run(t, s, empty(nil)...)
	check("refused", "dropped")

	// While a client follows, each is reported with its reason.
	barred := port("barred", model.TCP, frontend(model.ClusterIP, "10.96.0.3", 80, l.endpoints(model.IPv4, "p1")))
	barred.Frontends[0].Sources = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	run(t, s, set(barred)...)
	reports := make(chan denied.Report, 1024)
	ctx, cancel := context.WithCancel(t.Context())
	ended, err := denied.ListenNFLOG(ctx, l.node.FD, rules.ReportGroup, func(r denied.Report) { r.Packet = slices.Clone(r.Packet); reports <- r })
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, model.DenialsUpdate{Reported: true})
	for _, from := range []string{"p2", "node", "outside"} {
		for to, c := range map[string]struct{ answer, by string }{
			"10.96.0.1:80": {"refused", control.ByNoEndpoint}, "192.168.50.1:30080": {"refused", control.ByNoEndpoint},
			"10.96.0.2:81": {"refused", control.ByNoPort}, "192.168.50.1:30081": {"refused", ""},
			"10.96.0.2:80": {"dropped", control.ByNoLocalEndpoint}, "10.96.0.3:80": {"dropped", control.BySourceRanges},
		} {
			l.expect(t, from, "tcp", to, c.answer)
			if c.by == "" { // the node itself refuses it
				continue
			}
			select {
			case r := <-reports:
				drop, err := (&denied.View{}).Drop(r)
				if err != nil || drop.By != c.by || netip.AddrPortFrom(drop.To.Address, drop.Port).String() != to {
					t.Errorf("from %s to %s: reported %+v, %v", from, to, drop, err)
				}
			case <-time.After(eventually.Patience):
				t.Fatalf("from %s to %s: no report", from, to)
			}
			for len(reports) > 0 { // of packets that were sent again
				<-reports
			}
		}
	}
	cancel()
	<-ended
	if did := run(t, s, model.DenialsUpdate{}); did.Writes == 0 {
		t.Error("reports stay")
	}
	if did := run(t, Services(l.config()), append(l.nodes(), append(empty(nil), set(barred)...)...)...); did.Writes != 0 {
		t.Errorf("without a client that follows: %d writes", did.Writes)
	}
}

// TestServiceAffinity: a client keeps its endpoint; without it, it gets another and keeps that one. Endpoints that come, and others
// that go, change nothing.
func TestServiceAffinity(t *testing.T) {
	l := newServicesLab(t)
	s := Services(l.config())
	same := true
	with := func(names ...string) []model.Update {
		p := port("a", model.TCP)
		for f, a := range map[model.Family][2]string{model.IPv4: {"10.96.0.1", "0.0.0.0"}, model.IPv6: {"fd96::1", "::"}} {
			e := l.endpoints(f, names...)
			np := frontend(model.NodePort, a[1], 30080, nil)
			np.Endpoints, np.Inside = e[:1], e
			p.Frontends = append(p.Frontends, frontend(model.ClusterIP, a[0], 80, e), np)
		}
		if same { // all clients have the same endpoints
			for i := range p.Frontends {
				p.Frontends[i].Endpoints = p.Frontends[i].Inside
				if p.Frontends[i].Kind == model.ClusterIP {
					p.Frontends[i].Endpoints = l.endpoints(model.FamilyOf(p.Frontends[i].Addr), names...)
				}
			}
		}
		p.Affinity = time.Hour
		u := *p
		u.ID.Protocol = model.UDP
		return set(p, &u)
	}
	keeps := func(from, network, to string, connections int) string {
		t.Helper()
		at := netip.MustParseAddrPort(to)
		first := l.ask(t, from, network, at)
		for range connections {
			if got := l.ask(t, from, network, at); got != first {
				t.Fatalf("%s from %s to %s: %q after %q", network, from, to, got, first)
			}
		}
		return strings.Fields(first)[0]
	}
	// A client outside is remembered at an endpoint of another node, and then the policy becomes Local.
	run(t, s, append(l.nodes(), with("remote")...)...)
	if got := keeps("outside", "tcp", "192.168.50.1:30080", 1); got != "remote" {
		t.Errorf("a client outside is at %s before the policy is Local", got)
	}
	run(t, s, with("p1", "p2", "remote")...)
	if got := keeps("outside", "tcp", "192.168.50.1:30080", 1); got != "remote" {
		t.Errorf("a client outside is at %s, and was at remote", got)
	}
	same = false
	run(t, s, with("p1", "p2", "remote")...)
	clients := map[string]string{}
	for _, to := range []string{"10.96.0.1:80", "[fd96::1]:80"} {
		for _, n := range []string{"tcp", "udp"} {
			for from, connections := range map[string]int{"p1": 330, "p2": 20, "outside": 20, "node": 20} {
				clients[from+" "+n+" "+to] = keeps(from, n, to, connections)
			}
		}
	}
	if got := keeps("outside", "tcp", "192.168.50.1:30080", 20); got != "p1" {
		t.Errorf("a client outside is at %s, which is for others", got)
	}
	all := []string{"p1", "p2", "remote"}
	for _, gone := range all {
		var left []string
		for _, name := range all {
			if name != gone {
				left = append(left, name)
			}
		}
		run(t, s, with(left...)...)
		for key, had := range clients {
			from, rest, _ := strings.Cut(key, " ")
			n, to, _ := strings.Cut(rest, " ")
			switch got := keeps(from, n, to, 5); {
			case had == gone && got == gone:
				t.Errorf("%s is still at %s, which is gone", key, gone)
			case had != gone && got != had:
				t.Errorf("%s is at %s and was at %s, although %s is gone", key, got, had, gone)
			default:
				clients[key] = got
			}
		}
		run(t, s, with(all...)...)
		for key, had := range clients {
			from, rest, _ := strings.Cut(key, " ")
			n, to, _ := strings.Cut(rest, " ")
			if got := keeps(from, n, to, 3); got != had {
				t.Errorf("%s is at %s and was at %s, although %s has only come back", key, got, had, gone)
			}
		}
	}
}

// TestServicesAreEven: 3,000 connections over 3 endpoints pass a chi-square test at 1 %.
func TestServicesAreEven(t *testing.T) {
	l := newServicesLab(t)
	run(t, Services(l.config()), append(l.nodes(), set(port("a", model.UDP, frontend(model.ClusterIP, "10.96.0.1", 80, l.endpoints(model.IPv4, "p1", "p2", "remote"))))...)...)
	counts := map[string]int{}
	for range 3000 {
		counts[strings.Fields(l.ask(t, "outside", "udp", netip.MustParseAddrPort("10.96.0.1:80")))[0]]++
	}
	chi := 0.0
	for _, name := range []string{"p1", "p2", "remote"} {
		d := float64(counts[name]) - 1000
		chi += d * d / 1000
	}
	t.Logf("%v, chi-square %.2f", counts, chi)
	if chi > 9.21 { // two degrees of freedom
		t.Errorf("uneven")
	}
}

// TestExpiredClientsAreDrawnAnew: once a client is forgotten, its next endpoint does not depend on the last one. In each family 300 pairs of
// endpoints pass a chi-square test at 0.001 %.
func TestExpiredClientsAreDrawnAnew(t *testing.T) {
	l := newServicesLab(t)
	const clients, rounds = 100, 4
	p := port("a", model.UDP)
	p.Affinity = time.Second
	frontends := map[model.Family]string{model.IPv4: "10.96.0.1", model.IPv6: "fd96::1"}
	sources := map[model.Family][]netip.Addr{}
	for f, a := range frontends {
		p.Frontends = append(p.Frontends, frontend(model.ClusterIP, a, 80, l.endpoints(f, "p1", "p2", "remote")))
		first, command := netip.MustParseAddr("192.168.50.20"), "ip addr add %s/24 dev eth0"
		if f == model.IPv6 {
			first, command = netip.MustParseAddr("fd50::20"), "ip addr add %s/64 dev eth0 nodad"
		}
		var add strings.Builder
		for range clients {
			fmt.Fprintf(&add, command+"\n", first)
			sources[f] = append(sources[f], first)
			first = first.Next()
		}
		l.at["outside"].Run(t, "sh", "-ec", add.String())
	}
	run(t, Services(l.config()), append(l.nodes(), set(p)...)...)
	for f, to := range frontends {
		last, pairs := map[netip.Addr]string{}, map[string]float64{}
		for round := range rounds {
			for _, from := range sources[f] {
				got := strings.Fields(l.askFrom(t, "outside", from, "udp", netip.AddrPortFrom(netip.MustParseAddr(to), 80)))[0]
				if round > 0 {
					pairs[last[from]+" "+got]++
				}
				last[from] = got
			}
			eventually.True(t, "all clients are forgotten", func() bool {
				return !strings.Contains(l.node.Run(t, "nft", "list", "map", "inet", rules.ServicesTable, rules.ServicePick{Family: f, Affinity: p.Affinity}.Clients().Name), "expires")
			})
		}
		chi, expected := 0.0, float64(clients*(rounds-1))/9
		for _, a := range []string{"p1", "p2", "remote"} {
			for _, b := range []string{"p1", "p2", "remote"} {
				d := pairs[a+" "+b] - expected
				chi += d * d / expected
			}
		}
		t.Logf("IPv%s: %v, chi-square %.2f", f, pairs, chi)
		if chi > 37.3 { // eight degrees of freedom
			t.Errorf("IPv%s: uneven", f)
		}
	}
}
