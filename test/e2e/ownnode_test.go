package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
	"github.com/felixlike/felixlike/test/tablestest"
)

// adminDenyAll denies everything to and from every pod in the admin tier. A peer
// without fields makes the ingress rule deny all sources, nodes too.
const adminDenyAll = `
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: deny-all}, spec: {tier: Admin, priority: 0,
  subject: {namespaces: {}}, ingress: [{action: Deny, from: [{}]}], egress: [{action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]}}
`

// ownNodeCases are policies, and whether x/a reaches its own node under them.
var ownNodeCases = []struct {
	name     string
	policies []string
	// node, gateway and another say so of the node's addresses, by port 7778. notAccepted
	// says so of port 7779 of the node's address, service of the same listener as
	// port 7778, through a NodePort.
	node, gateway, another, notAccepted, service bool
}{
	{name: "without policy", node: true, gateway: true, another: true, notAccepted: true, service: true},
	{name: "isolated by NetworkPolicy", policies: []string{denyAll}, node: true, gateway: true, another: true, notAccepted: true, service: true},
	{name: "denied everything", policies: []string{adminDenyAll}},
	{name: "denied everything, and isolated", policies: []string{adminDenyAll, denyAll}},
	{name: "denied nodes", policies: []string{`
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: deny-nodes}, spec: {tier: Admin, priority: 0,
  subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {}}]}]}}
`}, gateway: true, another: true},
	{name: "one port accepted", policies: []string{adminDenyAll, `
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: accept}, spec: {tier: Admin, priority: 0,
  subject: {namespaces: {}}, egress: [{action: Accept, to: [{networks: [0.0.0.0/0, "::/0"]}], protocols: [{tcp: {destinationPort: {number: 7778}}}]}]}}
`}, node: true, gateway: true, another: true, service: true},
	{name: "passed on to NetworkPolicy", policies: []string{adminDenyAll, adminPassAll, baselineDenyAll, denyAll}, node: true, gateway: true, another: true, notAccepted: true, service: true},
	{name: "passed on to the baseline", policies: []string{adminDenyAll, adminPassAll, baselineDenyAll}},
	{name: "denied by the baseline", policies: []string{baselineDenyAll}},
	{name: "isolated past the baseline", policies: []string{baselineDenyAll, denyAll}, node: true, gateway: true, another: true, notAccepted: true, service: true},
}

const adminPassAll = `
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: a-pass-all}, spec: {tier: Admin, priority: 0,
  subject: {namespaces: {}}, egress: [{action: Pass, to: [{networks: [0.0.0.0/0, "::/0"]}]}]}}
`

const baselineDenyAll = `
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: baseline}, spec: {tier: Baseline, priority: 0,
  subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]}}
`

// denyAllEverywhere is the policy of adminDenyAll.
var denyAllEverywhere = model.PolicyID{Tier: model.TierAdmin, Name: "deny-all"}

// TestAdminDenyAndOwnNode: the ordered tiers judge what a pod sends to its own node, at each
// of its addresses and behind a translation of the destination. The node, and so its
// kubelet's probes, always reaches its own pods, and established connections go on.
func TestAdminDenyAndOwnNode(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, _ string) {
		set(t, l, state(t, threeNodes))
		a, own := l.Pod(pod("a")), l.Node("node1")
		for _, port := range []string{"7778", "7779"} {
			echoIn(t, own.Namespace(), port)
		}
		for _, f := range model.Families() {
			addr := ofFamily(f, anotherAddress)
			ipOn(t, own, "address", "add", netip.PrefixFrom(addr, addr.BitLen()).String(), "dev", "lo", "nodad")
			redirect(t, own, f)
		}
		to := func(addr netip.Addr, port uint16, timeout time.Duration) (*os.File, error) {
			return traffic.Connect(a.Namespace(), netip.Addr{}, netip.AddrPortFrom(addr, port), timeout)
		}
		probe := func(node string, f model.Family, timeout time.Duration) error {
			conn, err := traffic.Connect(l.Node(node).Namespace(), netip.Addr{}, netip.AddrPortFrom(a.Address(f), 80), timeout)
			if err != nil {
				return err
			}
			return errors.Join(traffic.Echo(conn, patience), conn.Close())
		}
		old := map[model.Family]*os.File{}
		for _, f := range model.Families() {
			eventually.True(t, "a connection from node2 without policy", func() bool { return probe("node2", f, time.Second) == nil })
			conn, err := to(own.Address(f), 7778, patience)
			if err != nil {
				t.Fatal(err)
			}
			old[f] = conn
			defer conn.Close()
		}
		for _, c := range ownNodeCases {
			set(t, l, state(t, append([]string{threeNodes}, c.policies...)...))
			for _, f := range model.Families() {
				if err := probe("node1", f, patience); err != nil {
					t.Errorf("%s: the own node reaches the pod over IPv%s: %v", c.name, f, err)
				}
				if err := traffic.Echo(old[f], patience); err != nil {
					t.Errorf("%s: a connection over IPv%s from before: %v", c.name, f, err)
				}
				for _, way := range []struct {
					addr  netip.Addr
					port  uint16
					wants bool
				}{
					{own.Address(f), 7778, c.node},
					{own.Address(f), 7779, c.notAccepted},
					{own.Address(f), nodePort, c.service},
					{gatewayOf(t, own, f), 7778, c.gateway},
					{ofFamily(f, anotherAddress), 7778, c.another},
				} {
					timeout := time.Second
					if way.wants {
						timeout = patience
					}
					conn, err := to(way.addr, way.port, timeout)
					if err == nil {
						err = errors.Join(traffic.Echo(conn, patience), conn.Close())
					}
					if (err == nil) != way.wants {
						t.Errorf("%s: to %s: %v, want a connection: %t", c.name, netip.AddrPortFrom(way.addr, way.port), err, way.wants)
					}
				}
			}
		}
		set(t, l, state(t, threeNodes, adminDenyAll))
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
		expect(t, l, false, "x/c", "x/a", model.TCP, 80)
		for _, f := range model.Families() {
			if probe("node2", f, time.Second) == nil {
				t.Errorf("node2 reaches the pod over IPv%s", f)
			}
		}
		seen := follow(t, own)
		_, _ = to(own.Address(model.IPv4), 7778, time.Second)
		eventually.True(t, "a report of a denied packet to the own node", func() bool {
			return slices.ContainsFunc(seen.drops(), func(d control.Drop) bool {
				return d.Direction == "egress" && d.Port == 7778 && d.From.Pod == "x/a" && d.By == control.ByRule && d.Policy == denyAllEverywhere.String()
			})
		})
	})
}

// anotherAddress is one that the node has besides those of its object and its gateway port.
var anotherAddress = netip.MustParseAddr("192.0.2.51")

// nodePort leads to port 7778 of the node's own address.
const nodePort = 30078

// redirect makes a node translate nodePort, as a proxy does for a NodePort with an endpoint
// in the node's own network.
func redirect(t *testing.T, n *lab.Node, f model.Family) {
	t.Helper()
	family, to := "ip", netip.AddrPortFrom(n.Address(f), 7778)
	if f == model.IPv6 {
		family = "ip6"
	}
	feed(t, n, fmt.Sprintf(`table %s own-service {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    %s daddr %s tcp dport %d dnat to %s
  }
}`, family, family, n.Address(f), nodePort, to), "nft", "-f", "-")
}

// gatewayOf returns the address of a node's gateway port.
func gatewayOf(t *testing.T, n *lab.Node, f model.Family) netip.Addr {
	t.Helper()
	text := shell(t, n, fmt.Sprintf("ip -br -%s address show dev %s scope global", f, model.GatewayPort))
	for _, word := range strings.Fields(text) {
		if p, err := netip.ParsePrefix(word); err == nil {
			return p.Addr()
		}
	}
	t.Fatalf("no address of IPv%s: %s", f, text)
	return netip.Addr{}
}

// TestOwnNodeByAnyAddress gives a node an address that comes and goes, as those of
// load balancers do. A pod that is denied all traffic in both directions and its
// node reach each other by that address all the same.
func TestOwnNodeByAnyAddress(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, _ string) {
		set(t, l, state(t, threeNodes, denyAll))
		n, a := l.Node("node1").Namespace(), l.Pod(pod("a"))
		for _, f := range model.Families() {
			own := ofFamily(f, netip.MustParseAddr("192.0.2.50"))
			ipOn(t, l.Node("node1"), "address", "add", netip.PrefixFrom(own, own.BitLen()).String(), "dev", "lo", "nodad")
			at := netip.AddrPortFrom(own, 7777)
			var listener net.Listener
			if err := n.Do(func() (err error) { listener, err = net.Listen("tcp", at.String()); return err }); err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			eventually.True(t, "a connection from "+own.String(), func() bool {
				conn, err := traffic.Connect(n, own, netip.AddrPortFrom(a.Address(f), 80), time.Second)
				return err == nil && traffic.Echo(conn, patience) == nil && conn.Close() == nil
			})
			eventually.True(t, "a connection to "+own.String(), func() bool {
				conn, err := traffic.Connect(a.Namespace(), netip.Addr{}, at, time.Second)
				return err == nil && conn.Close() == nil
			})
		}
	})
}

// ipOn runs the tool of that name on a node.
func ipOn(t *testing.T, n *lab.Node, args ...string) {
	t.Helper()
	feed(t, n, "", "ip", args...)
}

// TestHostTableIsRepaired removes the rules that keep source addresses true on their way to
// the switch: they come back at once, and no packet gets in as the node's meanwhile.
func TestHostTableIsRepaired(t *testing.T) {
	l := newLabWith(t, lab.Config{Backend: config.OpenFlow})
	c := serviceCases()[4]
	set(t, l, state(t, threeNodes, c.policies))
	n := l.Node("node1")
	listing := func() string {
		return tablestest.CanonicalNFT(shell(t, n, "nft -s list table inet felixlike-openflow"))
	}
	before := listing()
	for _, command := range [][]string{
		{"flush", "ruleset"},
		{"delete", "table", "inet", "felixlike-openflow"},
		{"flush", "chain", "inet", "felixlike-openflow", "postrouting"},
		{"flush", "set", "inet", "felixlike-openflow", "hairpin-4"},
	} {
		already := repairs(t, n)
		feed(t, n, "", "nft", command...)
		eventually.True(t, "status reports a repair", func() bool { return repairs(t, n) > already })
		asBefore(t, "nft "+command[0], before, listing)
	}
	expect(t, l, true, "x/b", "ip:"+stranger, model.TCP, 80)
	runProxy(t, l, proxyModes()["nftables"])
	judgeWays(t, l, c)
}
