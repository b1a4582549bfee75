package wanted_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/tablestest"
)

// servicesModel has Services of all forms of the table, as a client of the agent gets it.
func servicesModel(t *testing.T) *control.Model {
	t.Helper()
	addr := netip.MustParseAddr
	endpoints := func(local bool, all ...string) (out []model.ServiceEndpoint) {
		for _, a := range all {
			out = append(out, model.ServiceEndpoint{AddrPort: netip.MustParseAddrPort(a), Local: local})
		}
		return out
	}
	four, six := endpoints(true, "10.10.0.2:8080", "10.10.0.3:8080", "10.10.0.4:8080"), endpoints(false, "[fd11::2]:8080")
	many := endpoints(false)
	for i := range 70 {
		many = append(many, model.ServiceEndpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 10, 1, byte(i + 2)}), 53)})
	}
	id := func(name string, p model.Protocol, port uint16) model.ServicePortID {
		return model.ServicePortID{Namespace: "shop", Name: name, Protocol: p, Port: port}
	}
	m := &control.Model{
		Node: "n1", Backend: config.NFTables, ServicesKnown: true, Settings: control.Settings{ServiceProxy: true, NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}},
		Nodes: []*model.Node{
			{Name: "n1", Addresses: []netip.Addr{addr("192.168.50.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24"), netip.MustParsePrefix("fd10::/64")}},
			{Name: "n2", Addresses: []netip.Addr{addr("192.168.50.2")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24"), netip.MustParsePrefix("fd11::/64")}},
		},
		Pods: []control.Pod{{ID: model.PodID{Namespace: "shop", Name: "web-1"}, Addresses: []netip.Addr{addr("10.10.0.2")}}},
		ServicePorts: []*model.ServicePort{
			{ID: id("web", model.TCP, 80), Frontends: []model.Frontend{
				{Kind: model.ClusterIP, Addr: addr("10.96.0.1"), Port: 80, Endpoints: four},
				{Kind: model.ClusterIP, Addr: addr("fd96::1"), Port: 80, Endpoints: six},
				{
					Kind: model.LoadBalancerIP, Addr: addr("172.16.0.1"), Port: 80, Endpoints: four[:1], Inside: four,
					Sources: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.9/32")},
				},
				{Kind: model.NodePort, Addr: netip.IPv4Unspecified(), Port: 30080, Inside: four, Empty: model.DropSilently},
				{Kind: model.NodePort, Addr: netip.IPv6Unspecified(), Port: 30080, Endpoints: six, Inside: six},
			}},
			{ID: id("dns", model.UDP, 53), Affinity: 25*time.Hour + 61*time.Second, Frontends: []model.Frontend{
				{Kind: model.ClusterIP, Addr: addr("10.96.0.2"), Port: 53, Endpoints: many},
				{Kind: model.NodePort, Addr: netip.IPv4Unspecified(), Port: 30053, Endpoints: many[:2], Inside: many},
			}},
			{ID: id("affine", model.TCP, 53), Affinity: 3*time.Hour + 61*time.Second, Frontends: []model.Frontend{
				{Kind: model.ClusterIP, Addr: addr("fd96::2"), Port: 53, Endpoints: six},
			}},
			{ID: id("many", model.SCTP, 53), Frontends: []model.Frontend{{Kind: model.ClusterIP, Addr: addr("10.96.0.2"), Port: 53, Endpoints: many}}},
			{ID: id("empty", model.TCP, 80), Frontends: []model.Frontend{
				{Kind: model.ClusterIP, Addr: addr("10.96.0.3"), Port: 80}, {Kind: model.NodePort, Addr: netip.IPv4Unspecified(), Port: 30081},
			}},
		},
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := &control.Model{}
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestServicesAreWanted compares the desired Services table with what its stage programs, and finds foreign changes by the names of Services.
func TestServicesAreWanted(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	m := servicesModel(t)
	c := backend.Config{Node: m.Node, NetNS: ns.FD, ServiceProxy: true, NodePortAddresses: m.Settings.NodePortAddresses}
	s := backend.Services(c)
	for _, u := range m.Updates() {
		s.Managers[0].OnUpdate(u)
	}
	s.Managers[0].CompleteDeferredWork()
	if _, err := s.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, err := wanted.Of(m, "")
	if err != nil {
		t.Fatal(err)
	}
	want.Flows = nil
	want.Tables = slices.DeleteFunc(want.Tables, func(t *dump.Table) bool { return t.Name != "felixlike-services" })
	_, got := held(t, ns, config.NFTables)
	same(t, "the table of Services", got, want)
	if n := got.Count(); n.Elements < 300 {
		t.Errorf("%+v", n)
	}

	ns.Run(t, "nft", "delete", "element", "inet", "felixlike-services", "refused-4", "{ 10.96.0.3 . tcp . 80 }")
	ns.Run(t, "nft", "delete", "element", "inet", "felixlike-services", "endpoints-4", "{ 10.96.0.1 . tcp . 80 . 0x00000000 }")
	ns.Run(t, "nft", "add", "element", "inet", "felixlike-services", "endpoints-4", "{ 10.96.0.1 . tcp . 80 . 0x00000000 : 10.10.0.2 . 9999 }")
	ns.Run(t, "nft", "add", "element", "inet", "felixlike-services", "own-pods-4", "{ 172.30.0.0/16 }")
	ns.Run(t, "nft", "add", "chain", "inet", "felixlike-services", "theirs")
	ns.Run(t, "nft", "insert", "rule", "inet", "felixlike-services", "services-inside", "tcp", "dport", "80", "accept")
	ns.Run(t, "nft", "flush", "chain", "inet", "felixlike-services", "pick-4-3")
	_, got = held(t, ns, config.NFTables)
	note := names.Of(m).Note
	var lines []string
	for _, o := range compare.Structure(compare.Sides{Before: canonical(want), After: canonical(got), NoteBefore: note, NoteAfter: note}, compare.Options{OnlyOurs: true}) {
		for _, c := range append(o.Changes, compare.Change{Op: o.Op}) {
			lines = append(lines, strings.TrimSpace(strings.Join([]string{o.Name, string(c.Op), c.Before, c.After, c.Note}, "|")))
		}
	}
	all := strings.Join(lines, "\n")
	for _, line := range []string{
		"refused-4|removed|10.96.0.3,tcp/80||shop/empty:80/tcp\n",
		"endpoints-4|edited|10.96.0.1 . tcp . 80 . 0x00000000 : 10.10.0.2 . 8080|10.96.0.1 . tcp . 80 . 0x00000000 : 10.10.0.2 . 9999|shop/web:80/tcp; to shop/web-1\n",
		"own-pods-4|added||172.30.0.0/16|\n", "theirs|added|", "services-inside|added||tcp dport 80 accept|\n",
		"pick-4-3|removed|meta nfproto ipv4 ct mark set ct mark | 0x10000000 dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints-4",
	} {
		if !strings.Contains(all+"\n", line) {
			t.Errorf("no %q in\n%s", line, all)
		}
	}
	if n := len(lines); n != 12 {
		t.Errorf("%d lines\n%s", n, all)
	}
}

// The names of Services stand behind the elements.
func TestServicesHaveNames(t *testing.T) {
	m := servicesModel(t)
	s, err := wanted.Of(m, "")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := dump.Write(&b, canonical(s), dump.TextOptions{Note: names.Of(m).Note}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"10.96.0.1 . tcp . 80 . 0x00000000 : 10.10.0.2 . 8080,  # shop/web:80/tcp; to shop/web-1\n",
		"10.96.0.1 . tcp . 80 . 0xffffffff : 3.0.0.0 . 0,  # shop/web:80/tcp; endpoints: 3\n",
		"0.0.0.0 . tcp . 30080 . 0xfffffffe : 0.0.0.0 . 0,  # shop/web:80/tcp, node port; clients outside the cluster: no endpoint: drop\n",
		"172.16.0.1 . tcp . 80 . 198.51.100.0/24,  # shop/web:80/tcp, load balancer\n",
		"fd96::2 . tcp . 53 . 0xffffffff : ", "# shop/affine:53/tcp; endpoints: 1, kept for 3h1m1s\n",
		"10.96.0.3 . tcp . 80,  # shop/empty:80/tcp\n", "chain refuse {  # connections to Services without endpoints\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q", line)
		}
	}
	if t.Failed() {
		t.Log(b.String()[:min(b.Len(), 6000)])
	}
}
