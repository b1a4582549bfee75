package backend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/tablestest"
)

// numbered returns n endpoints.
func numbered(n int) (all []model.ServiceEndpoint) {
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 20, byte(i >> 8), byte(i)})
		all = append(all, model.ServiceEndpoint{AddrPort: netip.AddrPortFrom(a, 8080)})
	}
	return all
}

func servicesNode(ns tablestest.Namespace) (Config, []model.Update) {
	l := servicesLab{node: ns}
	return l.config(), l.nodes()
}

// objects returns the chains and rules of the table, without counters and elements.
func objects(t *testing.T, ns tablestest.Namespace) string {
	t.Helper()
	all := ns.Run(t, "nft", "-s", "-a", "-t", "list", "table", "inet", "felixlike-services")
	if !strings.Contains(all, "chain pick-4-64") {
		t.Fatalf("no table:\n%s", all)
	}
	return regexp.MustCompile(`elements = \{[^}]*\}`).ReplaceAllString(all, "")
}

// TestServiceChangesAreElements: a Service or an endpoint that comes or goes changes no chain, no rule and no set, and takes few
// messages. A number of endpoints above those that have a chain brings one chain, and it goes with its last Service.
func TestServiceChangesAreElements(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	c, nodes := servicesNode(ns)
	s := Services(c)
	with := func(endpoints ...model.ServiceEndpoint) []model.Update {
		np := frontend(model.NodePort, "0.0.0.0", 30080, endpoints)
		return set(port("a", model.TCP, frontend(model.ClusterIP, "10.96.0.1", 80, endpoints), np))
	}
	few, more := numbered(4), numbered(5)
	run(t, s, append(nodes, with(few...)...)...)
	before := objects(t, ns)
	for _, step := range []struct {
		name    string
		updates []model.Update
		writes  int
	}{
		{"one endpoint more", with(more...), 2},
		{"the last one less", with(few...), 2},
		{"one replaced", with(few[0], few[1], few[2], more[4]), 2},
		{"the first one less", with(few[1], few[2], more[4]), 2},
		{"one Service more", set(port("b", model.TCP, frontend(model.ClusterIP, "10.96.0.2", 80, few))), 2},
		{"one Service less", []model.Update{model.ServicePortRemove{ID: port("b", model.TCP).ID}}, 2},
		{"nothing", with(few[1], few[2], more[4]), 0},
	} {
		did := run(t, s, step.updates...)
		if did.Writes != step.writes {
			t.Errorf("%s: %d messages, want %d", step.name, did.Writes, step.writes)
		}
		if after := objects(t, ns); after != before {
			t.Errorf("%s: other chains, rules or sets:\n%s", step.name, after)
		}
	}
	many := numbered(5000)
	run(t, s, with(many...)...)
	if after := objects(t, ns); !strings.Contains(after, "chain pick-4-5000 ") || !strings.Contains(after, "chain node-port-4-5000 ") || strings.Count(after, "chain ") != strings.Count(before, "chain ")+2 {
		t.Errorf("5,000 endpoints:\n%s", after)
	}
	if did := run(t, Services(c), append(nodes, with(many...)...)...); did.Writes != 0 {
		t.Errorf("a restart with 5,000 endpoints: %+v", did)
	}
	if run(t, s, with(few...)...); objects(t, ns) != before {
		t.Errorf("their chains stay:\n%s", objects(t, ns))
	}
}

// TestServicesOverRestart: a restarted agent leaves the table as it is until it knows all Services, then writes nothing. Without the
// proxy it removes the table, and with all others of the node RemoveBeside does.
func TestServicesOverRestart(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	c, nodes := servicesNode(ns)
	all := set(port("a", model.TCP, frontend(model.ClusterIP, "10.96.0.1", 80, numbered(3))), port("b", model.UDP, frontend(model.ClusterIP, "10.96.0.1", 80, nil)))
	all[0].(model.ServicePortUpdate).Port.Affinity = time.Hour
	run(t, Services(c), append(nodes, all...)...)
	list := func() string { return ns.Run(t, "nft", "-s", "list", "ruleset") }
	programmed := list()
	restarted := Services(c)
	if did := run(t, restarted, append(all, nodes[:2]...)...); did.Writes != 0 || list() != programmed {
		t.Errorf("before all Services are known: %d writes", did.Writes)
	}
	if did := run(t, restarted, nodes...); did.Writes != 0 || !did.Full || list() != programmed {
		t.Errorf("a restart: %+v\n%s", did, list())
	}
	off := c
	off.ServiceProxy = false
	if did := run(t, Services(off)); did.Writes != 1 || list() != "" {
		t.Errorf("without the proxy: %d writes\n%s", did.Writes, list())
	}
	if did := run(t, Services(off)); did.Writes != 0 {
		t.Errorf("%d writes without a table", did.Writes)
	}
	run(t, Services(c), append(nodes, all...)...)
	if err := RemoveBeside(t.Context(), ns.FD); err != nil || list() != "" {
		t.Errorf("%v, left:\n%s", err, list())
	}
}

// TestForeignChangesOfServices: what others change comes back, and is reported.
func TestForeignChangesOfServices(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	c, nodes := servicesNode(ns)
	s := Services(c)
	p := port("a", model.TCP, frontend(model.ClusterIP, "10.96.0.1", 80, numbered(3)))
	p.Frontends[0].Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	changed := make(chan struct{}, 1)
	go func() {
		_ = s.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	run(t, s, append(nodes, set(p)...)...)
	list := func() string { // a chain that comes again stands behind the others
		lines := strings.Split(ns.Run(t, "nft", "-s", "list", "ruleset"), "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	programmed := list()
	for _, change := range []string{
		"delete element inet felixlike-services endpoints-4 { 10.96.0.1 . tcp . 80 . 0xffffffff }",
		"delete element inet felixlike-services endpoints-4 { 10.96.0.1 . tcp . 80 . 1 }",
		"add element inet felixlike-services endpoints-4 { 10.96.0.1 . tcp . 80 . 3 : 10.9.9.9 . 80 }",
		"flush set inet felixlike-services own-pods-4",
		"flush set inet felixlike-services sources-4",
		"flush chain inet felixlike-services pick-4-3",
		"insert rule inet felixlike-services services-inside accept",
		"add chain inet felixlike-services other\nadd set inet felixlike-services more { type ipv4_addr; }",
		"rename chain inet felixlike-services pick-4-9 other",
		"flush chain inet felixlike-services output\ndelete chain inet felixlike-services output",
		"flush chain inet felixlike-services output\ndelete chain inet felixlike-services output\nadd chain inet felixlike-services output { type nat hook output priority 5; }",
		"add table inet felixlike-services { flags dormant; }",
		"delete table inet felixlike-services",
		"flush ruleset",
	} {
		ns.Feed(t, change+"\n", "nft", "-f", "-")
		eventually.True(t, "repaired: "+change, func() bool {
			select {
			case <-changed:
				if did := run(t, s); len(did.Repaired) == 0 && did.Writes > 0 {
					t.Errorf("%s: no repair is reported: %+v", change, did)
				}
			default:
			}
			return list() == programmed
		}, list)
	}
	ns.Feed(t, "delete element inet felixlike-services endpoints-4 { 10.96.0.1 . tcp . 80 . 0xffffffff }\n", "nft", "-f", "-")
	s.Invalidate()
	if run(t, s); list() != programmed {
		t.Errorf("not repaired by a resync:\n%s", list())
	}
}

// TestRandomServices: after each of many random changes, the kernel has what a fresh load makes of the same Services.
func TestRandomServices(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	c, nodes := servicesNode(ns)
	s := Services(c)
	r := seeded.Rand(t, "services")
	run(t, s, nodes...)
	state := map[model.ServicePortID]*model.ServicePort{}
	for step := range 60 {
		var updates []model.Update
		for range 1 + r.IntN(4) {
			p := randomPort(r, state)
			if r.IntN(5) == 0 {
				delete(state, p.ID)
				updates = append(updates, model.ServicePortRemove{ID: p.ID})
				continue
			}
			state[p.ID] = p
			updates = append(updates, model.ServicePortUpdate{Port: p})
		}
		run(t, s, updates...)
		fresh := slices.Clone(nodes)
		for _, p := range state {
			fresh = append(fresh, model.ServicePortUpdate{Port: p})
		}
		if did := run(t, Services(c), fresh...); did.Writes != 0 {
			t.Fatalf("step %d: a fresh load writes %d messages: %+v\n%v", step, did.Writes, did, updates)
		}
	}
}

// randomPort returns a port whose frontends no other port of the state has.
func randomPort(r *rand.Rand, state map[model.ServicePortID]*model.ServicePort) *model.ServicePort {
	p := port(fmt.Sprint("s", r.IntN(6)), []model.Protocol{model.TCP, model.UDP, model.SCTP}[r.IntN(3)])
	p.Affinity = []time.Duration{0, 0, 0, time.Minute, time.Hour, time.Millisecond, 131072 * time.Second}[r.IntN(7)]
	some := func(f model.Family) (all []model.ServiceEndpoint) {
		for i := range r.IntN(9) * r.IntN(9) * r.IntN(3) {
			if r.IntN(4) > 0 {
				a := netip.AddrFrom4([4]byte{10, 10, 0, byte(i)})
				if f == model.IPv6 {
					a = netip.AddrFrom16([16]byte{0xfd, 15: byte(i)})
				}
				all = append(all, model.ServiceEndpoint{AddrPort: netip.AddrPortFrom(a, 80), Local: i%3 == 0})
			}
		}
		return all
	}
	for kind := range 4 {
		for _, f := range model.Families() {
			a := netip.AddrFrom4([4]byte{10, 96, byte(kind), byte(r.IntN(8))})
			if f == model.IPv6 {
				a = netip.AddrFrom16([16]byte{0xfd, 0x96, 14: byte(kind), 15: byte(r.IntN(8))})
			}
			e := model.Frontend{Kind: model.FrontendKind(kind), Addr: a, Port: uint16(80 + r.IntN(2)), Endpoints: some(f), Empty: model.NoEndpoint(r.IntN(2))}
			if e.Kind == model.NodePort {
				e.Addr = netip.IPv4Unspecified()
				if f == model.IPv6 {
					e.Addr = netip.IPv6Unspecified()
				}
			}
			if e.Inside = e.Endpoints; kind > 0 && r.IntN(2) == 0 {
				e.Inside = some(f)
			}
			if e.Kind == model.LoadBalancerIP && r.IntN(2) == 0 {
				e.Sources = []netip.Prefix{netip.PrefixFrom(a, a.BitLen()-8).Masked(), netip.PrefixFrom(a, a.BitLen()-4).Masked()}
			}
			taken := false
			for id, other := range state {
				taken = taken || id != p.ID && id.Protocol == p.ID.Protocol && slices.ContainsFunc(other.Frontends, func(o model.Frontend) bool { return o.Addr == e.Addr && o.Port == e.Port })
			}
			if !taken && r.IntN(4) > 0 {
				p.Frontends = append(p.Frontends, e)
			}
		}
	}
	return p
}
