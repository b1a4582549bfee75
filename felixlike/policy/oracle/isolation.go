package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// denyIsolated returns the decision for a packet to a pod that its isolation denies, and nil for others, which tiers and
// NetworkPolicies judge. The other end is a pod, or an address of a pod prefix without one.
func (q question) denyIsolated() *Decision {
	if !q.cluster.Antrea.Isolation || q.direction == model.Egress || !q.cluster.inPodPrefix(q.peer) ||
		slices.ContainsFunc(q.cluster.Nodes, func(n *corev1.Node) bool { return has(n, q.peer) }) {
		return nil
	}
	own := q.cluster.numberOf(q.subject.Namespace)
	if own != nil && *own == 0 {
		return nil
	}
	if p := q.peerPod; p != nil {
		its, known := q.cluster.numberOf(p.Namespace), q.cluster.namespaceLabels(p.Namespace) != nil
		switch {
		case own == nil && p.Namespace == q.subject.Namespace:
			return nil
		case known && its != nil && (*its == 0 || own != nil && *own == *its):
			return nil
		}
	}
	rule := RuleID{Policy: model.IsolationOf(q.subject.Namespace), Rule: "ingress[1]", Title: "other namespaces"}
	return &Decision{Why: RuleDenies, Policy: rule.Policy, Rule: rule.Rule, Title: rule.Title}
}

// inPodPrefix reports whether the address is in the pod prefix of a node.
func (c *Cluster) inPodPrefix(a netip.Addr) bool {
	return slices.ContainsFunc(c.Nodes, func(n *corev1.Node) bool {
		return slices.ContainsFunc(append(slices.Clone(n.Spec.PodCIDRs), n.Spec.PodCIDR), func(cidr string) bool { return holds(cidr, a) })
	})
}

// numberOf returns the number of a namespace, nil if there is none that is valid.
func (c *Cluster) numberOf(namespace string) *int64 {
	i := slices.IndexFunc(c.Antrea.NetNamespaces, func(n *antrea.NetNamespace) bool { return n.Name == namespace })
	if i < 0 {
		return nil
	}
	n := c.Antrea.NetNamespaces[i]
	if n.NetName != namespace || n.NetID == nil || *n.NetID < 0 || *n.NetID >= 1<<24 {
		return nil
	}
	return n.NetID
}
