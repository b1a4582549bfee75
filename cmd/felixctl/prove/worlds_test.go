package prove

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// worlds is the number of random clusters.
const worlds = 40

// worldOf returns the model of the first node of a cluster.
func worldOf(t *rapid.T, c *oracle.Cluster) *control.Model {
	own := []netip.Addr{netip.MustParseAddr("10.10.0.1"), netip.MustParseAddr("fd00:10::1")}
	for _, a := range c.Nodes[0].Status.Addresses {
		if address, err := netip.ParseAddr(a.Address); err == nil {
			own = append(own, address)
		}
	}
	m, _, err := wanted.FromEvents(wanted.Events(control.Objects{
		Nodes: c.Nodes, Namespaces: c.Namespaces, Pods: c.Pods, Policies: c.Policies, ClusterPolicies: c.ClusterPolicies, Antrea: c.Antrea,
	}), c.Nodes[0].Name, &control.Model{
		Settings:     control.Settings{Masquerade: true, Userspace: true, TunnelPort: 6081, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Isolation: c.Antrea.Isolation},
		LogsReported: true, HostAddresses: own,
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// answersOnly reports whether a difference is one of those that docs/explain/guarantees/clusternetworkpolicy.md lists under Reject: nobody gets through, and one side does not answer.
func answersOnly(backend string, d Difference) bool {
	if !strings.HasPrefix(d.A, "rejected") || d.B != "dropped" {
		return false
	}
	switch backend {
	case config.IPTablesNFT: // from a pod to its own node
		return d.Way == "to the host"
	case config.OpenFlow: // redirects and neighbour discovery from beyond a router
		kind := d.Packet.Port / 256
		return d.Packet.Protocol == model.ICMP && kind == 5 || d.Packet.Protocol == model.ICMPv6 && kind >= 133 && kind <= 137
	}
	return false
}

// TestWorldsAreEqual proves for random clusters, with policies of all tiers, that the backends do the same.
func TestWorldsAreEqual(t *testing.T) {
	seeded.Checks(t, worlds, func(t *rapid.T) {
		c := policytest.AntreaCluster(t)
		policytest.Crowd(t, c)
		expectEqual(t, worldOf(t, c), answersOnly)
	})
}

// TestWorldsAgreeWithOracle compares the verdicts of random packets of random clusters with those of the oracle, which knows policies only.
func TestWorldsAgreeWithOracle(t *testing.T) {
	samples, through := 0, 0
	seeded.Checks(t, worlds, func(t *rapid.T) {
		c := policytest.AntreaCluster(t)
		m := worldOf(t, c)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "packets"), 0))
		for _, backend := range []string{config.NFTables, "maps", config.IPTablesNFT} {
			st := stateOf(t, *m, backend)
			for _, f := range model.Families() {
				d, ends := forwarding(t, f, m, st)
				for _, p := range packetsOf(m, f, r, 100) {
					want := c.Evaluate(oracle.Packet{Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, Port: p.Port})
					samples++
					if want.Allowed {
						through++
					}
					if got := d.through(t, ends, p.Packet); got != want.Allowed {
						t.Errorf("%s: %v: through %v, the oracle says %+v", backend, p.Packet, got, want)
					}
				}
			}
		}
	})
	t.Logf("%d packets, %d through", samples, through)
	if through*50 < samples || (samples-through)*50 < samples {
		t.Error("the sample says little")
	}
}
