package policyflows

import (
	"errors"
	"fmt"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// refusedKey is a group of flows that cannot be programmed.
type refusedKey struct{ key, reason string }

// reasons returns the groups of flows that an error names.
func reasons(err error) []refusedKey {
	var refused []refusedKey
	if e := new(openflow.BundleError); errors.As(err, &e) {
		for _, r := range e.Refusals {
			refused = append(refused, refusedKey{r.Mod.Key, fmt.Sprintf("flow %s: %s", shortened(r.Mod.Flow.String()), r.Reason)})
		}
	}
	if e := new(openflow.ConflictError); errors.As(err, &e) {
		refused = append(refused, refusedKey{e.Keys[1], "conflicts with " + e.Keys[0]})
	}
	return refused
}

// maxFlowText bounds how much of a flow a reason has: one may be of thousands of
// actions.
const maxFlowText = 200

func shortened(flow string) string {
	if len(flow) > maxFlowText {
		return flow[:maxFlowText] + "..."
	}
	return flow
}
