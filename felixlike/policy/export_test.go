package policy

import "fmt"

// Left names what an engine still keeps, for tests that deleted everything.
func (e *Engine) Left() string {
	counts := []int{
		len(e.namespaces), len(e.pods), len(e.policies), len(e.scopes), len(e.groups), len(e.endpoints),
		e.scopeIndex.Len(), e.labelled.Len(), e.classes.Len(),
		e.labelSets.Len(), len(e.selectors),
		len(e.dirtyPods), len(e.dirtyPolicies), len(e.dirtyGroups), len(e.staleTargets),
		len(e.nodes.byName), e.nodes.waiting.Len(), len(e.nodes.emitted), len(e.nodePeers.byName), e.nodePeers.groups.Len(),
	}
	for _, n := range counts {
		if n > 0 {
			return fmt.Sprint(counts)
		}
	}
	return ""
}
