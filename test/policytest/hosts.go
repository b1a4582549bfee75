package policytest

import (
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Failsafe returns the failsafe ports of the nodes of HostPolicies. The first one is open to every host.
func Failsafe() model.Failsafe {
	numbers := portNumbers()
	port := func(p model.Protocol, at int, hosts ...string) model.FailsafePort {
		out := model.FailsafePort{PortRange: model.PortRange{Protocol: p, First: numbers[at], Last: numbers[at]}}
		for _, text := range hosts {
			out.Net = netip.MustParsePrefix(text)
		}
		return out
	}
	return model.Failsafe{
		In:  []model.FailsafePort{port(model.TCP, 0), port(model.TCP, 1, "10.10.0.8/29"), port(model.TCP, 1, "203.0.113.0/24"), port(model.UDP, 2, "fd00:10::/64")},
		Out: []model.FailsafePort{port(model.UDP, 1), port(model.TCP, 2, "192.168.50.12/32"), port(model.TCP, 2, "2001:db8::/32")},
	}
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
