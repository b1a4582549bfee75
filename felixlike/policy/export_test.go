package policy

import "fmt"

// Left counts the records of an engine, for tests that deleted everything. It returns ""
// without any.
func (e *Engine) Left() string {
	counts := []int{
		len(e.index.namespaces), len(e.pods.byID), len(e.pods.attached), len(e.pods.holders), e.pods.reporters.Len(), len(e.policies.byID), len(e.index.scopes), len(e.groups.byID), len(e.endpoints.emitted),
		e.index.scopeIndex.Len(), e.index.labelled.Len(), e.index.classes.Len(),
		e.index.labelSets.Len(), len(e.index.selectors),
		len(e.dirty.pods), len(e.dirty.policies), len(e.dirty.groups), len(e.dirty.targets),
		len(e.nodes.byName), len(e.nodes.emitted), len(e.nodePeers.byName), e.nodePeers.groups.Len(),
		len(e.antrea.objects), len(e.antrea.problems), len(e.antrea.uses), len(e.antrea.users), len(e.antrea.before), len(e.antrea.compiled),
		len(e.antrea.self), len(e.antrea.local), len(e.antrea.dirty), e.antrea.clusterPolicies,
		len(e.isolation.labels), len(e.isolation.dirty), len(e.isolation.classes.Names()),
		len(e.egressPolicies.objects), len(e.egressPolicies.compiled), len(e.egressPolicies.dirty), len(e.egressPolicies.dns),
		e.policies.named.Len(), e.index.members.hosted.Len(),
	}
	for _, n := range counts {
		if n > 0 {
			return fmt.Sprint(counts)
		}
	}
	return ""
}
