package bench

import "github.com/felixlike/felixlike/test/bench/worker"

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
	switch c {
	case worker.FirstLoad:
		return "first load"
	case worker.ToolLoad:
		return "the same state by the kernel's own tools"
	case worker.ManifestsRead:
		return "reading the objects from files"
	case worker.Restart:
		return "restart, nothing changed"
	case worker.Recheck:
		return "full re-check of the kernel's state"
	case worker.RuleChanged:
		return "one rule of a policy changed"
	case worker.ElementAdded:
		return "one pod joins a group"
	case worker.ElementRemoved:
		return "one pod leaves a group"
	case worker.EndpointAdded:
		return "one endpoint added"
	case worker.EndpointRemoved:
		return "one endpoint removed"
	case worker.PolicyAdded:
		return "one policy added"
	case worker.PolicyRemoved:
		return "one policy removed"
	case worker.ForeignRule:
		return "one rule of a policy deleted"
	case worker.ForeignChain:
		return "all rules of a policy deleted"
	case worker.ForeignElement:
		return "one member of a group deleted"
	case worker.ForeignDispatch:
		return "one endpoint's dispatch deleted"
	case worker.ForeignAll:
		return "everything deleted"
	case worker.Idle:
		return "idle"
	}
	return string(c)
}
