package worker

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// foreignTimeout bounds one foreign change of flows.
const foreignTimeout = 20 * time.Second

// foreignFlows changes the agent's flows over a separate OpenFlow connection,
// as ovs-ofctl would, but without the start of a program.
func foreignFlows(_ workload.Workload, _ *rules.Renderer, s Switch) []Foreign {
	f := &flowWriter{socket: filepath.Join(s.Dir, Bridge+".mgmt")}
	in := func(table uint8, priorities ...uint16) func(openflow.Installed) bool {
		return func(i openflow.Installed) bool { return i.Table == table && slices.Contains(priorities, i.Priority) }
	}
	// A rule's action, a clause of its dimensions, the drop of an isolated pod
	// (see ovsfwd/policyflows).
	action, clause, drop := in(pipeline.TableIngress, 190), in(pipeline.TableIngress, 199, 200), in(pipeline.TableIngressDefault, 200)
	return []Foreign{
		{Case: ForeignRule, Change: f.delete(action)},
		{Case: ForeignElement, Change: f.delete(clause)},
		{Case: ForeignDispatch, Change: f.delete(drop)},
	}
}

// flowWriter is another program that writes flows.
type flowWriter struct {
	socket string
	conn   *openflow.Conn
}

// delete returns a change that deletes one of the matching flows. Deleting all
// is not measured: the switch reports it in parts, so the repair takes
// several applies.
func (f *flowWriter) delete(meant func(openflow.Installed) bool) func(i int) (time.Time, error) {
	return func(i int) (time.Time, error) {
		ctx, cancel := context.WithTimeout(context.Background(), foreignTimeout)
		defer cancel()
		if f.conn == nil {
			var err error
			if f.conn, err = openflow.Dial(ctx, f.socket); err != nil {
				return time.Time{}, err
			}
		}
		held, err := f.conn.Dump(ctx, pipeline.PolicyOwner)
		if err != nil {
			return time.Time{}, err
		}
		flows := slices.DeleteFunc(held, func(i openflow.Installed) bool { return !meant(i) })
		slices.SortFunc(flows, func(a, b openflow.Installed) int {
			return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Cookie, b.Cookie))
		})
		if len(flows) == 0 {
			return time.Time{}, errors.New("the switch holds no flow of the kind")
		}
		one := flows[i%len(flows)]
		before := time.Now()
		return before, f.conn.Bundle(ctx, func(yield func(openflow.FlowMod, error) bool) {
			yield(openflow.FlowMod{
				Command: openflow.DeleteCookie, Flow: openflow.Flow{Table: one.Table}, Cookie: one.Cookie, Key: "a foreign change",
			}, nil)
		})
	}
}
