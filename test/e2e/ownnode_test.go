package e2e

import (
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

// TestOwnNodeByAnyAddress gives a node an address that comes and goes, as those of
// load balancers do: a pod that nobody may reach, and that may reach nobody, and its
// node reach each other by it all the same.
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

// TestHostTableIsRepaired takes away what keeps addresses true on their way to the
// switch: it comes back at once, and nobody gets in as the node meanwhile.
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
		eventually(t, "a repair is told of", func() bool { return repairs(t, n) > already })
		asBefore(t, "nft "+command[0], before, listing)
	}
	expect(t, l, true, "x/b", "ip:"+stranger, model.TCP, 80)
	runProxy(t, l, proxyModes()["nftables"])
	judgeWays(t, l, c)
}
