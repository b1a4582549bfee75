package e2e

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
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

// TestAdminDenyAndOwnNode: under any admin policy a node, and so its kubelet's probes,
// reaches its own pods, and they reach it. Pods of other nodes and other nodes do not.
func TestAdminDenyAndOwnNode(t *testing.T) {
	t.Parallel()
	inEachBackendInPairs(t, func(t *testing.T, l *lab.Lab, _ string) {
		set(t, l, state(t, threeNodes))
		a := l.Pod(pod("a"))
		reaches := func(node string, f model.Family) error {
			conn, err := traffic.Connect(l.Node(node).Namespace(), netip.Addr{}, netip.AddrPortFrom(a.Address(f), 80), time.Second)
			if err != nil {
				return err
			}
			return errors.Join(traffic.Echo(conn, patience), conn.Close())
		}
		for _, f := range model.Families() {
			eventually(t, "a connection from node2 without policy", func() bool { return reaches("node2", f) == nil })
		}
		set(t, l, state(t, threeNodes, adminDenyAll))
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
		expect(t, l, false, "x/c", "x/a", model.TCP, 80)
		for _, f := range model.Families() {
			if err := reaches("node1", f); err != nil {
				t.Errorf("own node: %v", err)
			}
			if reaches("node2", f) == nil {
				t.Errorf("node2 reaches the pod over IPv%s", f)
			}
			var listener net.Listener
			own := l.Node("node1").Namespace()
			at := netip.AddrPortFrom(l.Node("node1").Address(f), 7778)
			if err := own.Do(func() (err error) { listener, err = net.Listen("tcp", at.String()); return err }); err != nil {
				t.Fatal(err)
			}
			conn, err := traffic.Connect(a.Namespace(), netip.Addr{}, at, patience)
			if err != nil {
				t.Errorf("to the own node: %v", err)
			} else {
				conn.Close()
			}
			listener.Close()
		}
	})
}

// TestOwnNodeByAnyAddress gives a node an address that comes and goes, as those of
// load balancers do. A pod that is denied all traffic in both directions and its
// node reach each other by that address all the same.
func TestOwnNodeByAnyAddress(t *testing.T) {
	inEachBackendInPairs(t, func(t *testing.T, l *lab.Lab, _ string) {
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
			eventually(t, "a connection from "+own.String(), func() bool {
				conn, err := traffic.Connect(n, own, netip.AddrPortFrom(a.Address(f), 80), time.Second)
				return err == nil && traffic.Echo(conn, patience) == nil && conn.Close() == nil
			})
			eventually(t, "a connection to "+own.String(), func() bool {
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
		eventually(t, "status reports a repair", func() bool { return repairs(t, n) > already })
		asBefore(t, "nft "+command[0], before, listing)
	}
	expect(t, l, true, "x/b", "ip:"+stranger, model.TCP, 80)
	runProxy(t, l, proxyModes()["nftables"])
	judgeWays(t, l, c)
}
