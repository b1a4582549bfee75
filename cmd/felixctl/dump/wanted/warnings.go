package wanted

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

const (
	// slowFlows is how many flows a busy switch takes in a second if many of them differ in their
	// priority alone (docs/reference/limits/policies.md).
	slowFlows = 2_500
	// maxActions is the number of conjunctions that a flow has room for.
	maxActions = 4_000
)

// Warnings says which pods the model's backend would close, or may close, though other backends
// serve them: openflow has bounds that the others do not have. s is the desired state of the model.
func Warnings(m *control.Model, s *dump.State) []string {
	if m.Backend != config.OpenFlow {
		return nil
	}
	store := policyflows.New(policyflows.Options{Flows: newNotedFlows(pipeline.PolicyOwner)})
	run([]managers.Manager{managers.NewSwitchPolicyManager(m.Node, store)}, m.Updates())
	var all []string
	for _, fault := range store.Faults() {
		all = append(all, "the backend closes pods: "+fault)
	}
	for _, f := range s.Flows {
		if n := len(f.Actions); n > maxActions {
			all = append(all, fmt.Sprintf("a flow of table %d has %d actions, and there is room for about %d: the switch refuses it, and the backend closes the pods of its policies", f.Table, n, maxActions))
			break
		}
	}
	rules := 0
	for _, p := range m.Policies {
		rules += len(p.Ingress) + len(p.Egress)
	}
	deadline := backend.Deadline(rules)
	if needs := time.Duration(len(s.Flows)) * time.Second / slowFlows; needs > deadline {
		all = append(all, fmt.Sprintf("the policies have %d flows, which a busy switch may take %s to install: if the first apply of an agent misses its deadline of %s, the backend closes pods",
			len(s.Flows), needs.Round(time.Second), deadline))
	}
	return all
}
