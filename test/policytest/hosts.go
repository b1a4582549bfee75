package policytest

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Failsafe returns the failsafe ports of the nodes of HostPolicies.
func Failsafe() model.Failsafe {
	port := func(p model.Protocol, n uint16) []model.PortRange {
		return []model.PortRange{{Protocol: p, First: n, Last: n}}
	}
	return model.Failsafe{In: port(model.TCP, portNumbers()[0]), Out: port(model.UDP, portNumbers()[1])}
}

// HostPolicies adds policies that apply to the nodes themselves to a cluster, few of which are not valid.
func HostPolicies(t *rapid.T, c *oracle.Cluster) {
	c.Hosts = map[string]oracle.Host{}
	for _, n := range c.Nodes {
		c.Hosts[n.Name] = oracle.Host{Failsafe: Failsafe()}
	}
	c.Antrea.ClusterPolicies = append(c.Antrea.ClusterPolicies, times(t, "policies for nodes", 1, 3, func(i int) *antrea.ClusterNetworkPolicy {
		p := &antrea.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("nodes", i)}, Spec: antreaSpec(t)}
		if oneIn(t, 3, "before DNAT") {
			p.Annotations = map[string]string{model.PreDNATAnnotation: "true"}
		}
		if oneIn(t, mistakes, "bad annotation") {
			p.Annotations = pick(t, "annotation", map[string]string{model.PreDNATAnnotation: "yes"}, map[string]string{model.UntrackedAnnotation: "true"}, map[string]string{model.PreDNATAnnotation: "false"})
		}
		mixed := oneIn(t, mistakes, "pods too")
		toNodes := func(entries []antrea.AppliedTo) {
			for i := range entries {
				if mixed && i == 0 {
					continue
				}
				entries[i] = antrea.AppliedTo{NodeSelector: pick(t, "nodes", selector(t), &metav1.LabelSelector{})}
			}
		}
		toNodes(p.Spec.AppliedTo)
		for _, rules := range [][]antrea.Rule{p.Spec.Ingress, p.Spec.Egress} {
			for i := range rules {
				toNodes(rules[i].AppliedTo)
			}
		}
		return p
	})...)
}
