package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/lab"
)

// narrow is the MTU of the way between two nodes in TestPathMTU. A tunnelled packet of a pod with full size does not fit.
const narrow = 1400

// TestPathMTU: where the network between two nodes takes smaller packets than the uplink, pods learn it from the tunnel
// device's ICMP errors, and connections that send much work.
func TestPathMTU(t *testing.T) {
	if os.Getenv(datapathEnv) != ovsdb.DatapathSystem {
		t.Skip("the userspace datapath sends no ICMP errors for its tunnels: see test/vm")
	}
	inEachBackend(t, func(t *testing.T, l *lab.Lab, _ string) {
		set(t, l, state(t, threeNodes))
		nodes := []*lab.Node{l.Node("node1"), l.Node("node2")}
		for i, n := range nodes {
			peer := nodes[1-i].Address(model.IPv4)
			shell(t, n, fmt.Sprintf(`set -- $(ip -o route get %s); while [ "$1" != dev ]; do shift; done; ip route replace %s/32 dev "$2" mtu %d`, peer, peer, narrow))
		}
		for _, f := range model.Families() {
			transfer(t, l, "c", "a", f)
			learned := shellIn(t, l.Pod(pod("c")).Namespace(), fmt.Sprintf("ip route get %s", l.Pod(pod("a")).Address(f)))
			if !strings.Contains(learned, "mtu ") {
				t.Errorf("IPv%s: the pod has not learned the MTU of the path: %s", f, learned)
			}
		}
	})
}
