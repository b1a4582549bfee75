package bench

import (
	"cmp"

	"github.com/felixlike/felixlike/test/bench/worker"
)

// ChangeCases are the cases of one change at a time, in the order of reports.
func ChangeCases() []worker.Case {
	return []worker.Case{
		worker.RuleChanged, worker.ElementAdded, worker.ElementRemoved, worker.EndpointAdded, worker.EndpointRemoved,
		worker.PolicyAdded, worker.PolicyRemoved,
	}
}

// ForeignCases are the cases of changes by other programs, in the order of
// reports.
func ForeignCases() []worker.Case {
	return []worker.Case{
		worker.ForeignRule, worker.ForeignChain, worker.ForeignElement, worker.ForeignDispatch, worker.ForeignAll,
	}
}

// Words describes a case.
func Words(c worker.Case) string {
	words := map[worker.Case]string{
		worker.FirstLoad:       "first load",
		worker.ToolLoad:        "the same state by the kernel's own tools",
		worker.ManifestsRead:   "reading the objects from files",
		worker.Restart:         "restart, nothing changed",
		worker.Recheck:         "full re-check of the kernel's state",
		worker.RuleChanged:     "one rule of a policy changed",
		worker.ElementAdded:    "one pod joins a group",
		worker.ElementRemoved:  "one pod leaves a group",
		worker.EndpointAdded:   "one endpoint added",
		worker.EndpointRemoved: "one endpoint removed",
		worker.PolicyAdded:     "one policy added",
		worker.PolicyRemoved:   "one policy removed",
		worker.ForeignRule:     "one rule of a policy deleted",
		worker.ForeignChain:    "all rules of a policy deleted",
		worker.ForeignElement:  "one member of a group deleted",
		worker.ForeignDispatch: "one endpoint's dispatch deleted",
		worker.ForeignAll:      "everything deleted",
		worker.Idle:            "idle",
	}
	return cmp.Or(words[c], string(c))
}
