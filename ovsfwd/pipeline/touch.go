package pipeline

import (
	"context"
	"math"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Touch returns a function that adds or removes a flow that no packet meets: the switch revalidates its
// cached flows after every change.
func Touch(conn *openflow.Conn) func(ctx context.Context, add bool) error {
	return func(ctx context.Context, add bool) error {
		command := openflow.DeleteCookie
		if add {
			command = openflow.Add
		}
		return conn.Change(ctx, openflow.FlowMod{
			Command: command, Flow: openflow.Flow{Table: TableNowhere, Priority: 1},
			Cookie: TouchOwner << 48, Key: "a flow that triggers a revalidation",
		})
	}
}

// Silence is the change that makes a bridge drop every packet, for the moments before its switch ends: the
// connections that were read from it then stay as they are.
func Silence() openflow.FlowMod {
	return openflow.FlowMod{
		Command: openflow.Add, Flow: openflow.Flow{Table: TableClassifier, Priority: math.MaxUint16},
		Cookie: TouchOwner << 48, Key: "a flow that drops everything before the switch ends",
	}
}
