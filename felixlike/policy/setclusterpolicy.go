package policy

import (
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// SetClusterNetworkPolicy creates or replaces a ClusterNetworkPolicy, and reports what
// in it cannot be understood. Such a rule fails closed: an Accept matches nothing, and
// a Deny or a Pass denies everything.
func (e *Engine) SetClusterNetworkPolicy(object *v1alpha2.ClusterNetworkPolicy) []model.Problem {
	if object == nil {
		return nil
	}
	e.work.Policies++
	e.clusterPolicies[object.Name] = struct{}{}
	c, problems := compile.ClusterNetworkPolicy(object, e.groupIDs)
	for _, tier := range clusterTiers() {
		if tier != c.Model.ID.Tier {
			e.deletePolicy(model.PolicyID{Tier: tier, Name: object.Name})
		}
	}
	e.setPolicy(c)
	return problems
}

// DeleteClusterNetworkPolicy removes a ClusterNetworkPolicy.
func (e *Engine) DeleteClusterNetworkPolicy(name string) {
	delete(e.clusterPolicies, name)
	for _, tier := range clusterTiers() {
		e.deletePolicy(model.PolicyID{Tier: tier, Name: name})
	}
}

// AwaitsNamespace reports whether a ClusterNetworkPolicy may select the pods of a namespace
// whose object is not known yet. Until it is, no namespace selector matches them, so a
// Deny would miss them.
func (e *Engine) AwaitsNamespace(name string) bool {
	n := e.namespaces[name]
	return len(e.clusterPolicies) > 0 && (n == nil || n.labels == nil)
}

// clusterTiers lists the tiers of ClusterNetworkPolicies. A name is in one of them.
func clusterTiers() []model.Tier { return []model.Tier{model.TierAdmin, model.TierBaseline} }
