package policy

import "fmt"

// Left names what an engine still keeps, for tests that deleted everything.
func (e *Engine) Left() string {
	counts := []int{
		len(e.namespaces), len(e.pods), len(e.policies), len(e.scopes), len(e.groups), len(e.endpoints),
		e.scopeIndex.pairs.len(), e.scopeIndex.keys.len(), e.scopeIndex.rest.len(), e.labelled.byKey.len(), e.classes.byKey.len(),
		len(e.labelSets.byText), len(e.selectors),
		len(e.dirtyPods), len(e.dirtyPolicies), len(e.dirtyGroups), len(e.staleTargets),
		len(e.nodes.byName), e.nodes.waiting.len(), len(e.nodes.emitted), len(e.nodePeers.byName), e.nodePeers.groups.len(),
	}
	for _, n := range counts {
		if n > 0 {
			return fmt.Sprint(counts)
		}
	}
	return ""
}
