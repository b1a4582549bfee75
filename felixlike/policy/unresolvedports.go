package policy

import (
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// UnresolvedPorts finds named ports that no pod declares.
type UnresolvedPorts struct{ engine *Engine }

// OfNetwork returns, sorted, the named ports of a NetworkPolicy that no pod of its rules
// declares, if the policy applies to endpoints of this node. The rules allow nothing to these
// ports, and their authors may not expect this.
func (u UnresolvedPorts) OfNetwork(namespace, name string) []string {
	return u.engine.policies.unresolvedPorts([]model.PolicyID{networkPolicyID(namespace, name)}, compile.PortName.String)
}

// OfCluster returns the same of a ClusterNetworkPolicy. A name there is for
// every protocol: it is unresolved if no pod declares it for any.
func (u UnresolvedPorts) OfCluster(name string) []string {
	var all []model.PolicyID
	for _, tier := range clusterTiers() {
		all = append(all, model.PolicyID{Tier: tier, Name: name})
	}
	return u.engine.policies.unresolvedPorts(all, func(p compile.PortName) string { return p.Name })
}

// OfAntrea returns the same of a policy of Antrea's API, as of the last Flush.
func (u UnresolvedPorts) OfAntrea(id antrea.ID) []string {
	var all []model.PolicyID
	for _, ids := range u.engine.antrea.compiled[id] {
		all = append(all, ids...)
	}
	return u.engine.policies.unresolvedPorts(all, compile.PortName.String)
}
