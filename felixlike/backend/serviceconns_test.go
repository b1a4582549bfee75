package backend

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// flow is a client of UDP with one source port.
type flow struct {
	*net.UDPConn
	to *net.UDPAddr
}

func (l *servicesLab) flow(t *testing.T, from, to string) *flow {
	t.Helper()
	f := &flow{to: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))}
	l.in(t, from, func() (err error) {
		f.UDPConn, err = net.ListenUDP("udp", nil)
		return err
	})
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// ask returns the name of the pod that answers, "nobody" without an answer.
func (f *flow) ask(t *testing.T) string {
	t.Helper()
	_ = f.SetDeadline(time.Now().Add(silence))
	if _, err := f.WriteTo([]byte("?"), f.to); err != nil && !strings.Contains(err.Error(), "not permitted") {
		t.Error(err)
	}
	b := make([]byte, 64)
	n, err := f.Read(b)
	if err != nil {
		return "nobody"
	}
	return strings.Fields(string(b[:n]))[0]
}

// TestServicesWithoutConntrack: while the entries of former endpoints cannot be ended, the table is programmed and the error says that
// later stages can run. They are ended as soon as it works, without another change of a Service.
func TestServicesWithoutConntrack(t *testing.T) {
	l := newServicesLab(t)
	failing := false
	s, _ := services(l.config(), func(netns int, m *managers.ServiceManager) (int, error) {
		if failing {
			return 0, errors.New("no conntrack")
		}
		return endStranded(netns, m)
	})
	with := func(name string) []model.Update {
		return set(port("a", model.UDP, frontend(model.ClusterIP, "10.96.0.1", 80, l.endpoints(model.IPv4, name))))
	}
	run(t, s, append(l.nodes(), with("p1")...)...)
	old := l.flow(t, "p2", "10.96.0.1:80")
	if got := old.ask(t); got != "p1" {
		t.Errorf("%s answers", got)
	}
	failing = true
	for range 2 {
		for _, m := range s.Managers {
			for _, u := range with("remote") {
				m.OnUpdate(u)
			}
			m.CompleteDeferredWork()
		}
		_, err := s.Run(t.Context())
		var incomplete Incomplete
		if !errors.As(err, &incomplete) || !strings.Contains(err.Error(), "no conntrack") {
			t.Errorf("error %v", err)
		}
	}
	if got := l.flow(t, "p2", "10.96.0.1:80").ask(t); got != "remote" {
		t.Errorf("a new flow: %s answers", got)
	}
	failing = false
	run(t, s)
	if got := old.ask(t); got != "remote" {
		t.Errorf("the old flow: %s answers", got)
	}
}

// TestServiceFlows: flows of UDP with one source port follow the endpoints of their Service, also if there were none and if the Service
// did not exist; those to an endpoint that still answers go on. Connections of TCP are left alone.
func TestServiceFlows(t *testing.T) {
	l := newServicesLab(t)
	s := Services(l.config())
	with := func(serving []string, names ...string) []model.Update {
		p := port("a", model.UDP)
		for f, a := range map[model.Family][2]string{model.IPv4: {"10.96.0.1", "0.0.0.0"}, model.IPv6: {"fd96::1", "::"}} {
			e := l.endpoints(f, names...)
			p.Frontends = append(p.Frontends, frontend(model.ClusterIP, a[0], 80, e), frontend(model.NodePort, a[1], 30080, e))
			for _, e := range l.endpoints(f, serving...) {
				p.Serving = append(p.Serving, e.AddrPort)
			}
		}
		tcp, sctp := *p, *p
		tcp.ID.Protocol, sctp.ID.Protocol = model.TCP, model.SCTP
		return set(p, &tcp, &sctp)
	}
	run(t, s, l.nodes()...)
	flows := map[string]*flow{}
	for _, from := range []string{"p2", "node", "outside"} {
		for _, to := range []string{"10.96.0.1:80", "[fd96::1]:80", "192.168.50.1:30080", "[fd50::1]:30080"} {
			flows[from+" to "+to] = l.flow(t, from, to)
		}
	}
	all := func(when, want string) {
		t.Helper()
		var wait sync.WaitGroup
		for name, f := range flows {
			wait.Go(func() {
				if got := f.ask(t); got != want {
					t.Errorf("%s: %s gets an answer of %s, want %s", when, name, got, want)
				}
			})
		}
		wait.Wait()
	}
	entries := func(protocol string) string {
		return l.node.Run(t, "sh", "-c", fmt.Sprintf("conntrack -L -p %s 2>&1 | grep dst=10.96.0.1 || true", protocol))
	}
	all("before the Service", "nobody")
	run(t, s, with(nil, "p1")...)
	all("with its first endpoint", "p1")
	l.expect(t, "p2", "tcp", "10.96.0.1:80", "p1 *")
	if _, _, arrived := l.association(t, "p2", "p1", netip.MustParseAddrPort("10.96.0.1:80")); !arrived {
		t.Error("no association")
	}
	run(t, s, with([]string{"p1"}, "remote")...)
	all("while the first endpoint still answers", "p1")
	run(t, s, with(nil, "remote")...)
	all("with another endpoint", "remote")
	if all := entries("tcp"); !strings.Contains(all, "10.10.0.2") {
		t.Errorf("connections of TCP:\n%s", all)
	}
	if all := entries("sctp"); strings.Contains(all, "10.10.0.2") {
		t.Errorf("connections of SCTP:\n%s", all)
	}
	run(t, s, with(nil)...)
	all("without endpoints", "nobody")
	run(t, s, with(nil, "p1")...)
	all("with an endpoint again", "p1")
	if did := run(t, Services(l.config()), append(l.nodes(), with(nil, "p1")...)...); did.Writes != 0 {
		t.Errorf("a restart: %+v", did)
	}
	all("after a restart", "p1")
	if did := run(t, Services(l.config()), append(l.nodes(), with(nil, "remote")...)...); did.Writes == 0 {
		t.Errorf("a restart with other endpoints: %+v", did)
	}
	all("after a restart with other endpoints", "remote")
	run(t, s, with(nil, "p1")...)
	l.node.Run(t, "nft", "delete", "table", "inet", "felixlike-services")
	flows["p1 to 10.96.0.1:80, begun without the table"] = l.flow(t, "p1", "10.96.0.1:80")
	flows["outside to [fd50::1]:30080, begun without the table"] = l.flow(t, "outside", "[fd50::1]:30080")
	all("without the table", "nobody")
	s.Invalidate()
	run(t, s)
	all("with the table again", "p1")
	var gone []model.Update
	for _, u := range with(nil) {
		gone = append(gone, model.ServicePortRemove{ID: u.(model.ServicePortUpdate).Port.ID})
	}
	run(t, s, with(nil, "remote")...)
	run(t, s, gone...)
	all("without the Service", "nobody")
}

// TestFewServiceChangesReadConnections: only a change that can leave flows of UDP or SCTP behind is a reason to read all connections.
func TestFewServiceChangesReadConnections(t *testing.T) {
	m := managers.NewServiceManager("n1", nil, noServiceTable{})
	l := servicesLab{}
	take := func(updates ...model.Update) bool {
		for _, u := range updates {
			m.OnUpdate(u)
		}
		m.CompleteDeferredWork()
		defer m.Reconciled()
		return m.Stranded() != nil
	}
	with := func(p model.Protocol, n int) model.Update {
		return set(port("a", p, frontend(model.ClusterIP, "10.96.0.1", 80, numbered(n))))[0]
	}
	draining := with(model.UDP, 4).(model.ServicePortUpdate)
	for _, e := range numbered(5) {
		draining.Port.Serving = append(draining.Port.Serving, e.AddrPort)
	}
	for _, step := range []struct {
		name    string
		updates []model.Update
		want    bool
	}{
		{"the start, since a Service may have gone while no process ran", l.nodes(), true},
		{"a Service of TCP", []model.Update{with(model.TCP, 3)}, false},
		{"one endpoint less", []model.Update{with(model.TCP, 2)}, false},
		{"a Service of UDP", []model.Update{with(model.UDP, 4)}, true},
		{"one endpoint more", []model.Update{with(model.UDP, 5)}, false},
		{"one that terminates", []model.Update{draining}, false},
		{"and is gone", []model.Update{with(model.UDP, 4)}, true},
		{"the same again", []model.Update{with(model.UDP, 4)}, false},
		{"none left", []model.Update{with(model.UDP, 0)}, true},
		{"the first one", []model.Update{with(model.UDP, 1)}, true},
	} {
		if got := take(step.updates...); got != step.want {
			t.Errorf("%s: connections are read %v, want %v", step.name, got, step.want)
		}
	}
}

type noServiceTable struct{ managers.ServiceTable }

func (noServiceTable) UpdateChain(tables.Chain)   {}
func (noServiceTable) RemoveChain(string)         {}
func (noServiceTable) UpdateSet(tables.LargeSet)  {}
func (noServiceTable) RemoveSet(string)           {}
func (noServiceTable) Put(string, string, string) {}
func (noServiceTable) Remove(set, key string)     {}
