package policy

import "fmt"

// Left names what an engine still keeps, for tests that deleted everything.
func (e *Engine) Left() string {
	counts := []int{
		len(e.namespaces), len(e.pods), len(e.policies), len(e.scopes), len(e.groups), len(e.endpoints),
		len(e.scopesByLabel.pairs), len(e.scopesByLabel.keys), len(e.scopesByLabel.rest),
		len(e.nodes.byName), len(e.nodes.waiting), len(e.nodes.emitted),
	}
	for _, n := range counts {
		if n > 0 {
			return fmt.Sprint(counts)
		}
	}
	return ""
}
