package oracle

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// denyLeaving returns the decision for a packet that an EgressNetworkPolicy denies to leave the cluster, and nil for others.
func (q question) denyLeaving() *Decision {
	if !q.cluster.Antrea.Isolation || q.direction != model.Egress || q.cluster.inPodPrefix(q.peer) {
		return nil
	}
	namespaces := []string{q.subject.Namespace}
	if own := q.cluster.numberOf(q.subject.Namespace); own != nil {
		if *own == 0 {
			return nil
		}
		for _, n := range q.cluster.Antrea.NetNamespaces {
			if its := q.cluster.numberOf(n.Name); its != nil && *its == *own && n.Name != q.subject.Namespace {
				namespaces = append(namespaces, n.Name)
			}
		}
	}
	var objects []*antrea.EgressNetworkPolicy
	for _, o := range q.cluster.Antrea.EgressPolicies {
		if slices.Contains(namespaces, o.Namespace) && len(o.Spec.Egress) > 0 {
			objects = append(objects, o)
		}
	}
	if len(objects) == 0 {
		return nil
	}
	first := slices.MinFunc(objects, func(a, b *antrea.EgressNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	denied := &Decision{
		Why: RuleDenies, Policy: model.PolicyID{Tier: model.TierAdmin, API: model.EgressNetworkPolicy, Namespace: first.Namespace, Name: first.Name},
		Rule: "egress", Title: "in conflict",
	}
	if len(objects) > 1 || len(namespaces) > 1 || len(first.Spec.Egress) > 1000 {
		return denied
	}
	for i, r := range first.Spec.Egress {
		denied.Rule, denied.Title = fmt.Sprintf("egress[%d]", i), model.RuleTitle(cmp.Or(r.To.CIDRSelector, r.To.DNSName))
		switch matches, understood := leavesTo(r.To, q.peer); {
		case r.Type == antrea.EgressAllow && understood && matches:
			return nil
		case r.Type == antrea.EgressAllow:
		case r.Type != antrea.EgressDeny || !understood || matches:
			return denied
		}
	}
	return nil
}

// leavesTo reports whether an address is one of a rule's, and whether the peer is understood.
func leavesTo(to antrea.EgressNetworkPolicyPeer, a netip.Addr) (matches, understood bool) {
	if to.CIDRSelector == "0.0.0.0/32" {
		return a.Is4(), to.DNSName == ""
	}
	p, err := parseCIDR(to.CIDRSelector)
	return err == nil && p.Contains(a), err == nil && !p.Addr().Is4In6() && to.DNSName == ""
}
