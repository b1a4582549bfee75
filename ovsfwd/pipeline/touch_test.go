package pipeline

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// TestChangeReachesEveryCachedFlow makes two cached flows that overlap: one is from
// before a change that made the other wider. When both must change, ovs-vswitchd 3.1
// changes one twice and the other never. Without Purge, denied packets of the other
// pass for as long as they keep coming.
func TestChangeReachesEveryCachedFlow(t *testing.T) {
	c := newClusterOf(t, false, func(*Node) {}, func([]openflow.Flow) []openflow.Flow { return nil })
	conn, err := openflow.Dial(c.Context(), c.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	daemon := vswitchd.New(c.Daemons.Dir(), "netdev")
	settle := func() {
		t.Helper()
		if err := daemon.WaitRevalidators(c.Context(), Touch(conn)); err != nil {
			t.Fatal(err)
		}
	}
	pod, gw := openWire(t, c.NS, "v0p"), openWire(t, c.NS, "flx-gw0")
	first, second := c.pods[0].MAC, c.pods[1].MAC
	passes := func(mac net.HardwareAddr, src string) {
		t.Helper()
		frame := ipFrame(broadcast(), mac, src, "10.9.0.9")
		pod.send(frame)
		if gw.await(frame) == nil {
			t.Fatalf("packet from %s is lost", src)
		}
	}
	out := fmt.Sprintf("actions=output:%d", c.node.GatewayPort)
	for _, flow := range []string{
		fmt.Sprintf("table=0,priority=1,dl_src=%s,actions=resubmit(,1)", first),
		fmt.Sprintf("table=0,priority=1,dl_src=%s,actions=resubmit(,2)", second),
		"table=1,priority=20,ip,nw_src=10.9.0.200,actions=drop",
		"table=1,priority=10,ip,nw_dst=10.9.0.9," + out,
		"table=1,priority=10,ip,nw_dst=10.9.0.8," + out,
		"table=2,priority=10,ip,nw_dst=10.9.0.9," + out,
	} {
		c.Ofctl("add-flow", flow)
	}
	passes(second, "10.9.0.50") // caches by destination, so that flows of that form come first
	passes(first, "10.9.0.1")   // caches by source and destination
	c.Ofctl("del-flows", "table=1,ip,nw_src=10.9.0.200")
	settle()
	passes(first, "10.9.0.130") // caches by destination

	c.Ofctl("mod-flows", "table=1,ip,nw_dst=10.9.0.9,actions=drop")
	settle()
	for line := range strings.Lines(c.Run("ovs-appctl", "-t", c.Daemons.VSwitchdControl(), "dpctl/dump-flows", "--names")) {
		if strings.Contains(line, first.String()) && !strings.Contains(line, "actions:drop") {
			t.Errorf("still cached after the change: %s", line)
		}
	}
	// Too wide now, so it is removed from before the first one.
	c.Ofctl("add-flow", "table=1,priority=20,ip,nw_src=10.9.0.130,actions=drop")
	settle()
	late := openWire(t, c.NS, "flx-gw0")
	denied, behind := ipFrame(broadcast(), first, "10.9.0.1", "10.9.0.9"), ipFrame(broadcast(), first, "10.9.0.1", "10.9.0.8")
	pod.send(denied)
	pod.send(behind)
	if late.await(behind) == nil {
		t.Fatal("the packet behind is lost")
	}
	if late.got(denied) != nil {
		t.Error("a denied packet comes through")
	}
}
