package prove

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

var samples = flag.Int("samples", 100, "packets of each random cluster, backend and family in TestWorldsAgreeWithOracle")

// addressesOf returns a node's addresses and those of its gateway.
func addressesOf(node *corev1.Node) (own []netip.Addr) {
	for _, cidr := range node.Spec.PodCIDRs {
		own = append(own, netip.MustParsePrefix(cidr).Addr().Next())
	}
	for _, a := range node.Status.Addresses {
		if address, err := netip.ParseAddr(a.Address); err == nil {
			own = append(own, address)
		}
	}
	return own
}

// worldOf returns the model of a node of a cluster.
func worldOf(t fataler, c *oracle.Cluster, node *corev1.Node) *control.Model {
	m, _, err := wanted.FromEvents(wanted.Events(control.Objects{
		Nodes: c.Nodes, Namespaces: c.Namespaces, Pods: c.Pods, Policies: c.Policies, ClusterPolicies: c.ClusterPolicies, Antrea: c.Antrea,
	}), node.Name, &control.Model{
		Settings:     control.Settings{Masquerade: true, Userspace: true, TunnelPort: 6081, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Isolation: c.Antrea.Isolation},
		LogsReported: true, HostAddresses: addressesOf(node),
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
		expectEqual(t, worldOf(t, c, c.Nodes[0]), answersOnly)
	})
}

// TestWorldsAgreeWithOracle compares the verdicts of random packets of random clusters with those of the oracle, which knows policies only.
func TestWorldsAgreeWithOracle(t *testing.T) {
	judged, through := 0, 0
	seeded.Checks(t, worlds, func(t *rapid.T) {
		c := policytest.AntreaCluster(t)
		m := worldOf(t, c, c.Nodes[0])
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "packets"), 0))
		for _, backend := range []string{config.NFTables, "maps", config.IPTablesNFT} {
			st := stateOf(t, *m, backend)
			for _, f := range model.Families() {
				d, ends := forwarding(t, f, m, st)
				for _, p := range packetsOf(m, f, r, *samples) {
					want := c.Evaluate(oracle.Packet{Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, Port: p.Port})
					allowed := (want.Egress.Allowed || !attached(m, p.Source)) && (want.Ingress.Allowed || !attached(m, p.Destination)) // another node decides about its pods
					judged++
					if allowed {
						through++
					}
					if got := d.through(t, ends, p.Packet); got != allowed {
						t.Errorf("%s: %v: through %v, the oracle says %+v", backend, p.Packet, got, want)
					}
				}
			}
		}
	})
	t.Logf("%d packets, %d through", judged, through)
	if through*50 < judged || (judged-through)*50 < judged {
		t.Error("the sample says little")
	}
}
