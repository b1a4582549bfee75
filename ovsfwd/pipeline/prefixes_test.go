package pipeline

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestCachedFlowsOfOutsidePeers counts the cached flows of many peers outside the cluster, for both families and directions, with
// policies that have ipBlocks in both. A packet has two of them, before and after connection tracking.
func TestCachedFlowsOfOutsidePeers(t *testing.T) {
	c := newClusterOf(t, false, func(n *Node) { n.Mode = Full }, func(flows []openflow.Flow) []openflow.Flow { return flows })
	if !c.Userspace() {
		t.Skip("cached flows of the userspace datapath are counted")
	}
	cfg := c.Config
	cfg.Prefixes = Prefixes()
	db, err := ovsdb.Open(c.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	for _, f := range []string{"ip,nw_%s=198.51.0.0/16", "ip,nw_%s=203.0.113.0/24", "ipv6,ipv6_%s=2001:db8:51::/48", "ipv6,ipv6_%s=2001:db8:113::/64"} {
		c.Ofctl("add-flow", fmt.Sprintf("table=50,priority=200,"+f+",actions=drop", "dst"))
		c.Ofctl("add-flow", fmt.Sprintf("table=90,priority=200,"+f+",actions=drop", "src"))
	}
	pod, gw := openWire(t, c.NS, "v0p"), openWire(t, c.NS, "flx-gw0")
	const peers = 40
	flows := func(egress bool, own, peer string) (n int) {
		c.Run("ovs-appctl", "-t", c.Daemons.VSwitchdControl(), "revalidator/purge")
		for i := range peers {
			local, outside := netip.MustParseAddr(own), netip.MustParseAddr(fmt.Sprintf(peer, i+1))
			etherType := uint16(0x0800)
			if local.Is6() {
				etherType = 0x86dd
			}
			// A protocol without ports and checksum.
			frame, in, out := ethernet(c.node.GatewayMAC, c.pods[0].MAC, etherType, ip(local, outside, 253, 64, []byte("felixlike"))), pod, gw
			if !egress {
				frame, in, out = ethernet(c.pods[0].MAC, c.node.GatewayMAC, etherType, ip(outside, local, 253, 64, []byte("felixlike"))), gw, pod
			}
			before := out.count()
			in.send(frame)
			ovstest.Poll(t, func() error {
				if out.count() == before {
					return fmt.Errorf("the packet between %s and %s is lost, egress %v", own, outside, egress)
				}
				return nil
			})
		}
		for line := range strings.Lines(c.Run("ovs-appctl", "-t", c.Daemons.VSwitchdControl(), "dpctl/dump-flows", "--names")) {
			if strings.Contains(line, "proto=253") {
				n++
			}
		}
		return n
	}
	type path struct {
		own, peer string
		egress    bool
	}
	const few = 5
	most := map[path]int{
		{"10.10.0.2", "192.0.2.%d", true}: few, {"10.10.0.2", "192.0.2.%d", false}: few, {"fd00:10:10::2", "2001:db8:2::%d", false}: few,
		// Table 40 matches four kinds of addresses, and tracks three: see Prefixes.
		{"fd00:10:10::2", "2001:db8:2::%d", true}: peers + few,
	}
	before := map[path]int{}
	for p := range most {
		before[p] = flows(p.egress, p.own, p.peer)
	}
	if err := db.EnsureBridge(c.Context()); err != nil {
		t.Fatal(err)
	}
	for p, limit := range most {
		n := flows(p.egress, p.own, p.peer)
		t.Logf("%d peers %s of %s, egress %v: %d cached flows, %d without prefixes", peers, p.peer, p.own, p.egress, n, before[p])
		if n > limit {
			t.Errorf("%d peers %s of %s, egress %v: %d cached flows, want at most %d", peers, p.peer, p.own, p.egress, n, limit)
		}
	}
}
