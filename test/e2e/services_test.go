package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// way is a connection through a Service, and whether it has to get through. The
// source is a pod of namespace x, a node, or a host outside the cluster; the target
// "a" is the Service of pod x/a, "node1:a" the port of that Service on node1,
// "node1!a" its port for endpoints of node1 itself.
type way struct {
	from, to string
	through  bool
}

func open(pairs ...string) []way   { return ways(true, pairs) }
func denied(pairs ...string) []way { return ways(false, pairs) }

// ways takes "from -> to".
func ways(through bool, pairs []string) []way {
	var all []way
	for _, p := range pairs {
		from, to, _ := strings.Cut(p, " -> ")
		all = append(all, way{from, to, through})
	}
	return all
}

// outside and stranger are hosts outside the cluster.
const (
	outside  = "192.0.2.7"
	stranger = "192.0.2.8"
)

// testedServices are the Services of these tests; the last one leads outside the
// cluster.
func testedServices() []service {
	return []service{{number: 1, name: "a", endpoint: "a"}, {number: 2, name: "b", endpoint: "b"}, {number: 3, name: "c", endpoint: "c"}, {number: 4, name: "ext", endpoint: stranger}}
}

// serviceCase has the expected connections to Services under some policies: x/a and x/b
// are on node1, x/c on node2, x/d on node3.
type serviceCase struct {
	name     string
	policies string
	ways     []way
}

func serviceCases() []serviceCase {
	const named = `{kind: NetworkPolicy, metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, `
	return []serviceCase{
		{"no policy", "", slices.Concat(
			open(
				"b -> a", "c -> a", "a -> c", "a -> a", "node1 -> a", "node1 -> c", "node2 -> a",
				outside+" -> node1:a", outside+" -> node2:a", outside+" -> node1!a",
				"node2 -> node1:a", "node1 -> node1:a", "node1 -> node1:c", "node1 -> node1!a",
				"b -> node1:a", "b -> node1!a", "b -> node1:c", "a -> node1:a", "c -> node1:a", "c -> node1:c", "d -> node1:c", "d -> node2:a",
				"a -> ext", "b -> node1:ext",
			),
			denied(outside+" -> node2!a"), // the proxy's doing: no endpoint there
		)},
		{"ingress from x/c only", named + `ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}], ports: [{port: 80}]}]}}`, slices.Concat(
			// Between its own node's port and a pod there is no other node.
			open("c -> a", "c -> node1:a", "c -> node2:a", "c -> node1!a", "node1 -> a", "node1 -> node1:a", "a -> b", "a -> c"),
			denied(
				"b -> a", "d -> a", "a -> a", "node2 -> a", outside+" -> node1:a", outside+" -> node2:a", outside+" -> node1!a",
				"node2 -> node1:a", "b -> node1:a", "b -> node1!a", "b -> node2:a", "a -> node1:a", "d -> node1:a", "d -> node2:a",
				// It comes from node3 then.
				"c -> node3:a",
			),
		)},
		{"ingress from one client", named + `ingress: [{from: [{ipBlock: {cidr: ` + outside + `/32}}, {ipBlock: {cidr: "` + lab.Map(netip.MustParseAddr(outside)).String() + `/128"}}]}]}}`, slices.Concat(
			open(outside+" -> node1:a", outside+" -> node1!a", "node1 -> a"),
			denied(stranger+" -> node1:a", stranger+" -> node1!a", outside+" -> node2:a", "b -> a", "a -> a"),
		)},
		{"ingress from node2", named + `ingress: [{from: [{ipBlock: {cidr: 10.10.1.1/32}}, {ipBlock: {cidr: "` + lab.Map(netip.MustParseAddr("10.10.1.1")).String() + `/128"}}]}]}}`, slices.Concat(
			// A connection through another node's port comes from that node.
			open(outside+" -> node2:a", stranger+" -> node2:a", "d -> node2:a", "b -> node2:a", "node2 -> a"),
			denied("c -> a", "c -> node2:a", outside+" -> node1:a", "b -> node1:a"),
		)},
		{"no ingress", named + `ingress: []}}`, slices.Concat(
			open("node1 -> a", "node1 -> node1:a", "node1 -> node1!a", "a -> b", "a -> node1:c", "a -> ext"),
			denied("b -> a", "c -> a", "a -> a", "a -> node1:a", outside+" -> node1:a", outside+" -> node2:a", outside+" -> node1!a", "b -> node1:a", "node2 -> node1:a", "c -> node1:a"),
		)},
		{"no egress", named + `policyTypes: [Egress]}}`, slices.Concat(
			open("b -> a", "c -> a", "node1 -> a", outside+" -> node1:a", outside+" -> node2:a", "b -> node1:c", "b -> ext"),
			denied("a -> b", "a -> c", "a -> a", "a -> node1:b", "a -> node1:c", "a -> node1!b", "a -> node1:a", "a -> node2:c", "a -> ext", "a -> node1:ext"),
		)},
		{"egress to itself only", named + `policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {pod: a}}}], ports: [{port: 80}]}]}}`, slices.Concat(
			open("a -> a", "a -> node1:a", "b -> a"),
			denied("a -> b", "a -> c", "a -> node1:c", "a -> ext"),
		)},
		{"egress to x/c only", named + `policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {pod: c}}}], ports: [{port: 80}]}]}}`, slices.Concat(
			open("a -> c", "a -> node1:c", "a -> node1!c"),
			denied("a -> a", "a -> b", "a -> node1:b", "a -> node2:c"), // node2 is not x/c
		)},
		{"both only with itself", named + `ingress: [{from: [{podSelector: {matchLabels: {pod: a}}}]}], egress: [{to: [{podSelector: {matchLabels: {pod: a}}}]}], policyTypes: [Ingress, Egress]}}`, slices.Concat(
			open("a -> a", "a -> node1:a", "node1 -> a"),
			denied("b -> a", "a -> b", outside+" -> node1:a"),
		)},
	}
}

// TestServices judges connections through Services, as a proxy makes them, under
// every backend and with every kind of proxy. Policy sees the real source of a
// connection, at the node that knows it, and no detour avoids policy.
func TestServices(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, backend string) {
		set(t, l, state(t, threeNodes))
		// A server runs from now on.
		expect(t, l, true, "x/b", "ip:"+stranger, model.TCP, 80)
		for _, mode := range slices.Sorted(maps.Keys(proxyModes())) {
			t.Run(mode, func(t *testing.T) {
				runProxy(t, l, proxyModes()[mode])
				for _, c := range serviceCases() {
					set(t, l, state(t, threeNodes, c.policies))
					judgeWays(t, l, c)
				}
				if backend != config.OpenFlow {
					settled(t, l)
				}
			})
		}
	})
}

// settled checks the marks of all connections of the nodes: those that are marked as not translated are not, and the
// others that have the mark of answered ones are. There are some of both kinds.
func settled(t *testing.T, l *lab.Lab) {
	t.Helper()
	counts := map[bool]int{}
	for _, name := range []string{"node1", "node2", "node3"} {
		err := l.Node(name).Namespace().Do(func() error {
			kernel, err := conntrack.OpenKernel()
			if err != nil {
				return err
			}
			defer kernel.Close()
			return kernel.Dump(func(c conntrack.Connection) {
				if c.Zone != 0 || c.Mark&rules.MarkSettled == 0 {
					return
				}
				counts[c.Translated()]++
				if c.Translated() == (c.Mark&rules.MarkUntranslated != 0) {
					t.Errorf("%s: connection %s, answered as %s, has mark %#x", name, c.Original, c.Reply, c.Mark)
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if counts[true] == 0 || counts[false] == 0 {
		t.Errorf("%d connections are marked as translated, %d as not translated", counts[true], counts[false])
	}
}

// runProxy runs a proxy on all nodes until the test ends.
func runProxy(t *testing.T, l *lab.Lab, mode func(t *testing.T, n *lab.Node, p proxy) (remove func())) {
	t.Helper()
	runProxyFor(t, l, mode, testedServices())
}

// runProxyFor does so for some Services.
func runProxyFor(t *testing.T, l *lab.Lab, mode func(t *testing.T, n *lab.Node, p proxy) (remove func()), services []service) {
	t.Helper()
	for _, name := range []string{"node1", "node2", "node3"} {
		for _, f := range model.Families() {
			n := l.Node(name)
			t.Cleanup(mode(t, n, newProxy(l, n, f, services)))
		}
	}
}

// judgeWays tries all ways of a case side by side, in both families.
func judgeWays(t *testing.T, l *lab.Lab, c serviceCase) {
	t.Helper()
	var running sync.WaitGroup
	for _, w := range c.ways {
		for _, f := range model.Families() {
			running.Go(func() {
				err := w.try(l, f)
				if through := err == nil; through != w.through {
					t.Errorf("%s: %s -> %s over IPv%s: through %v, want %v (%v)", c.name, w.from, w.to, f, through, w.through, err)
				}
			})
		}
	}
	running.Wait()
}

// open opens the connection.
func (w way) open(l *lab.Lab, f model.Family, timeout time.Duration) (*os.File, error) {
	from, source, err := l.Host(endOf(w.from), f)
	if err != nil {
		return nil, err
	}
	to, err := w.target(l, f)
	if err != nil {
		return nil, err
	}
	return traffic.Connect(from, source, to, timeout)
}

// try opens the connection and has a byte echoed.
func (w way) try(l *lab.Lab, f model.Family) error {
	timeout := probeTimeout
	if w.through {
		timeout = patience
	}
	conn, err := w.open(l, f, timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	return traffic.Echo(conn, timeout)
}

// TestServicesOverHandover opens connections through Services, denies all of them to
// new connections, and changes the backends under them: they go on, with any
// source that proxies and backends have bound them to.
func TestServicesOverHandover(t *testing.T) {
	l := newLab(t)
	set(t, l, state(t, threeNodes))
	expect(t, l, true, "x/b", "ip:"+stranger, model.TCP, 80)
	runProxy(t, l, proxyModes()["nftables"])
	denial := serviceCase{name: "all denied", ways: denied("b -> a", "a -> a", "c -> node1:a", "a -> node1:c", outside+" -> node1:a", "a -> ext")}
	conns := openWays(t, l)
	check := func(when string) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(conns)) {
			if err := traffic.Echo(conns[name], 5*time.Second); err != nil {
				t.Errorf("%s: %s: %v", when, name, err)
				delete(conns, name)
			}
		}
		judgeWays(t, l, denial)
	}
	set(t, l, state(t, threeNodes, denyAll))
	check("under policy")
	for _, to := range []string{config.OpenFlow, config.IPTablesNFT, config.OpenFlow, config.NFTables} {
		for _, name := range []string{"node1", "node2", "node3"} {
			change(t, l.Node(name), to)
		}
		check("after the change to " + to)
	}
}

// endOf returns the end of a probe that a name stands for.
func endOf(name string) string {
	switch {
	case strings.HasPrefix(name, "node"):
		return "node:" + name
	case strings.Contains(name, "."):
		return "ip:" + name
	}
	return "x/" + name
}

// target returns where a way leads to.
func (w way) target(l *lab.Lab, f model.Family) (netip.AddrPort, error) {
	node, name, first := "", w.to, 0
	for mark, port := range map[string]int{":": 30000, "!": 31000} {
		if n, s, ok := strings.Cut(w.to, mark); ok {
			node, name, first = n, s, port
		}
	}
	for _, s := range testedServices() {
		switch {
		case s.name != name:
		case node == "":
			return netip.AddrPortFrom(s.address(f), servicePort), nil
		default:
			return netip.AddrPortFrom(l.Node(node).Address(f), uint16(first+s.number)), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("there is no service %q", name)
}
