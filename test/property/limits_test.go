package property

import (
	"fmt"
	"os"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
)

// firstPort is that of the first rule of the first of many policies.
const firstPort = 2000

// manyClusterPolicies are that many policies of the admin tier about db with 25 ingress
// rules, one a port. Their actions take turns.
func manyClusterPolicies(n int) []*v1alpha2.ClusterNetworkPolicy {
	const rules = 25
	actions := []v1alpha2.ClusterNetworkPolicyRuleAction{
		v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny, v1alpha2.ClusterNetworkPolicyRuleActionPass,
	}
	var all []*v1alpha2.ClusterNetworkPolicy
	for i := range n {
		p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cluster-%04d", i)}}
		p.Spec.Tier, p.Spec.Priority = v1alpha2.AdminTier, int32(i)
		p.Spec.Subject.Pods = &v1alpha2.NamespacedPod{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}
		for j := range rules {
			port := &v1alpha2.Port{Number: int32(firstPort + i*rules + j)}
			p.Spec.Ingress = append(p.Spec.Ingress, v1alpha2.ClusterNetworkPolicyIngressRule{
				Action:    actions[(i*rules+j)%len(actions)],
				From:      []v1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}},
				Protocols: []v1alpha2.ClusterNetworkPolicyProtocol{{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}}},
			})
		}
		all = append(all, p)
	}
	return all
}

// manyNetworkPolicies are that many policies about db with ten ingress rules, one a
// port. All rules of a policy are about one of two pods.
func manyNetworkPolicies(n int) []*networkingv1.NetworkPolicy {
	const rules = 10
	var all []*networkingv1.NetworkPolicy
	for i := range n {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("policy-%04d", i)}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": "db"}
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		for j := range rules {
			port := intstr.FromInt32(int32(firstPort + i*rules + j))
			from := &metav1.LabelSelector{MatchLabels: map[string]string{"app": []string{"web", "api"}[i%2]}}
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
				Ports: []networkingv1.NetworkPolicyPort{{Port: &port}}, From: []networkingv1.NetworkPolicyPeer{{PodSelector: from}},
			})
		}
		all = append(all, p)
	}
	return all
}

// TestOneRuleOfMany changes the port of one rule of 200 policies about db. Under each
// backend a ClusterNetworkPolicy costs no more messages than a NetworkPolicy. With the layout
// of maps, which holds NetworkPolicies only, no more than a NetworkPolicy in rules.
func TestOneRuleOfMany(t *testing.T) {
	t.Parallel()
	const policies = 200
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			change := func(d *dataplane, set func(changed bool)) (writes int, took time.Duration) {
				for _, changed := range []bool{true, false, true} {
					set(changed)
					began := time.Now()
					n := d.program(t)
					if n == 0 {
						t.Fatal("nothing is written")
					}
					writes, took = max(writes, n), time.Since(began)
				}
				return writes, took
			}
			pods := []string{"web", "db", "api", "mon"}
			b := newTestbedOf(t, backend, pods)
			inRules := b
			if backend == nftablesMaps {
				inRules = newTestbedOf(t, config.NFTables, pods)
			}
			network := tierCluster(t)
			network.Policies = manyNetworkPolicies(policies)
			inRules.lead(t, network)
			d := inRules.sites["node1"].plane()
			networkWrites, networkTime := change(d, func(changed bool) {
				p := network.Policies[policies/2].DeepCopy()
				if changed {
					*p.Spec.Ingress[4].Ports[0].Port = intstr.FromInt32(60000)
				}
				d.engine.SetNetworkPolicy(p)
			})
			cluster := tierCluster(t)
			cluster.ClusterPolicies = manyClusterPolicies(policies)
			b.lead(t, cluster)
			d = b.sites["node1"].plane()
			clusterWrites, clusterTime := change(d, func(changed bool) {
				p := cluster.ClusterPolicies[policies/2].DeepCopy()
				if changed {
					p.Spec.Ingress[4].Protocols[0].TCP.DestinationPort.Number = 60000
				}
				d.engine.SetClusterNetworkPolicy(p)
			})
			t.Logf("one rule of a NetworkPolicy: %d messages in %s; of a ClusterNetworkPolicy: %d messages in %s",
				networkWrites, networkTime.Round(100*time.Microsecond), clusterWrites, clusterTime.Round(100*time.Microsecond))
			// A Pass is two rules under netfilter.
			if clusterWrites > 2*networkWrites {
				t.Errorf("%d messages for a NetworkPolicy, %d for a ClusterNetworkPolicy", networkWrites, clusterWrites)
			}
		})
	}
}

// TestVerdictsAtTheLimits has a pod with the policies of docs/reference/limits/policies.md, or with a tenth of them: each backend
// programs them all, and judges as the oracle does.
func TestVerdictsAtTheLimits(t *testing.T) {
	t.Parallel()
	clusterPolicies, networkPolicies := 100, 500
	if os.Getenv(limitsVariable) == "full" {
		clusterPolicies, networkPolicies = 1000, 5000
	} else {
		t.Logf("a tenth of the policies: set %s=full for all of them", limitsVariable)
	}
	ordered, network := tierCluster(t, onlyPort(firstPort+2)), tierCluster(t)
	ordered.ClusterPolicies = manyClusterPolicies(clusterPolicies)
	network.Policies = manyNetworkPolicies(networkPolicies)
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			b := newTestbedOf(t, backend, []string{"web", "db", "api", "mon"})
			delete(b.sites, "node2")
			d := b.sites["node1"].plane()
			for _, c := range []struct {
				what    string
				cluster *oracle.Cluster
				rules   int
			}{{"ClusterNetworkPolicies", ordered, 25 * clusterPolicies}, {"NetworkPolicies", network, 10 * networkPolicies}} {
				d.become(b.cluster, c.cluster)
				b.cluster = c.cluster
				began := time.Now()
				if done, err := d.apply(); err != nil || len(done.Refused) > 0 {
					t.Fatalf("%s: %v, %d refused: %.1000v", c.what, err, len(done.Refused), done.Refused)
				}
				took := time.Since(began)
				clear(b.verdicts)
				b.judgeNew(t, b.connections(packetsAtTheLimits(c.rules)))
				t.Logf("%d rules of %s in %s; %d packets through, %d blocked", c.rules, c.what, took.Round(100*time.Millisecond), b.verdicts[true], b.verdicts[false])
				if b.verdicts[true] == 0 || b.verdicts[false] == 0 {
					t.Errorf("one-sided: %v", b.verdicts)
				}
			}
		})
	}
}

// limitsVariable chooses the size of TestVerdictsAtTheLimits.
const limitsVariable = "FLX_TEST_LIMITS"

// packetsAtTheLimits are packets of two pods to db: to the ports of the first rules, of some in the middle, of the
// last ones, and of none.
func packetsAtTheLimits(rules int) []oracle.Packet {
	var all []oracle.Packet
	for _, first := range []int{0, rules / 3, rules / 2, rules - 12} {
		for i := range 14 {
			for _, from := range []string{"web", "mon"} {
				all = append(all, connect{from: from, to: "db", port: uint16(firstPort + first + i)}.packets()...)
			}
		}
	}
	return all
}
