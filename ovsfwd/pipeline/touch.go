package pipeline

import (
	"context"
	"math"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Touch returns a function that adds a flow that no packet meets, or removes it:
// the switch looks through what it has cached after every change.
func Touch(conn *openflow.Conn) func(ctx context.Context, add bool) error {
	return func(ctx context.Context, add bool) error {
		command := openflow.DeleteCookie
		if add {
			command = openflow.Add
		}
		return conn.Change(ctx, openflow.FlowMod{
			Command: command, Flow: openflow.Flow{Table: TableNowhere, Priority: 1},
			Cookie: TouchOwner << 48, Key: "a flow to have others looked at",
		})
	}
}

// Silence is the change that has a bridge drop every packet, for the moments
// before its switch ends: what it has told of its connections stays so.
func Silence() openflow.FlowMod {
	return openflow.FlowMod{
		Command: openflow.Add, Flow: openflow.Flow{Table: TableClassifier, Priority: math.MaxUint16},
		Cookie: TouchOwner << 48, Key: "a flow that drops everything before the switch ends",
	}
}
