package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

func dispatch(d model.Direction, f model.Family) tables.Rule {
	return tables.Rule{
		Action:  tables.Dispatch{Family: f, Side: dispatchSide(d), Map: DispatchMap(d, f)},
		Comment: dispatchComment(d),
	}
}

// dispatchSide returns the end of a packet by which a direction is dispatched.
func dispatchSide(d model.Direction) tables.Side {
	if d == model.Egress {
		return tables.Source
	}
	return tables.Destination
}

func dispatchComment(d model.Direction) string {
	if d == model.Egress {
		return "policies of the source pod"
	}
	return "policies of the destination pod"
}
