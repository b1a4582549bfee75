package openflow_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/ovstest"
)

// user makes a flow that uses hashGroup.
func user(table uint8) []openflow.Flow {
	return []openflow.Flow{{Table: table, Priority: 7, Match: openflow.IPv4(), Actions: []openflow.Action{openflow.Hash(hashGroup())}}}
}

// dumped returns the bridge's groups in ovs-ofctl notation.
func dumped(b *ovstest.Bridge) string {
	_, groups, _ := strings.Cut(b.Run("ovs-ofctl", "-O", "OpenFlow15", "dump-groups", "unix:"+b.Management()), "\n")
	return groups
}

// A group is sent once, however many flows use it later, and not again by a process that finds it in the switch.
func TestGroupIsSentOnce(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	table.SetFlows("a", fixed(user(41)))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1, Groups: 1})
	table.SetFlows("b", fixed(user(42)))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
	table.RemoveFlows("a")
	table.SetFlows("c", fixed(user(43)))
	apply(t, b, table, openflow.Result{Messages: 2, Added: 1, Deleted: 1})

	again := connected(t, b)
	again.SetFlows("b", fixed(user(42)))
	again.SetFlows("c", fixed(user(43)))
	again.SetFlows("d", fixed(user(44)))
	apply(t, b, again, openflow.Result{Messages: 1, Added: 1})
}

// A changed group is found at the next full read; a group deleted with its flows is reported at once.
func TestForeignChangesOfGroups(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn := dial(t, b)
	table := openflow.NewFlowTable(owner, 1)
	table.Connect(conn)
	table.SetFlows("a", fixed(user(41)))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1, Groups: 1})
	want := dumped(b)
	for _, change := range []string{
		"group_id=7,type=select,bucket=drop", "group_id=7,type=indirect,bucket=resubmit(,42)", strings.ReplaceAll(strings.TrimSpace(want), "dp_hash", "hash"),
	} {
		b.Ofctl("mod-group", change)
		if dumped(b) == want {
			t.Fatalf("%s: changed nothing", change)
		}
		apply(t, b, table, openflow.Result{})
		table.Connect(conn)
		apply(t, b, table, openflow.Result{Groups: 1, Repaired: []tables.Repair{{Object: "group", Name: "group=7", What: "1 group changed"}}})
		if diff := cmp.Diff(want, dumped(b)); diff != "" {
			t.Errorf("%s: %s", change, diff)
		}
		table.Connect(conn)
		apply(t, b, table, openflow.Result{})
	}
	b.Run("ovs-ofctl", "-O", "OpenFlow15", "mod-group", "unix:"+b.Management(), "group_id=7,type=all,bucket=drop")
	again := connected(t, b)
	again.SetFlows("a", fixed(user(41)))
	apply(t, b, again, openflow.Result{Groups: 1})
	if diff := cmp.Diff(want, dumped(b)); diff != "" {
		t.Errorf("while no process ran: %s", diff)
	}
}

// unmonitored is a switch that never reports changes.
type unmonitored struct{ *openflow.Conn }

func (unmonitored) Monitor(context.Context, func([]openflow.FlowChange, bool)) error { return nil }

// A group that was deleted a moment ago, which is not reported yet, refuses no flow.
func TestGroupDeletedBeforeTheReport(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := openflow.NewFlowTable(owner, 1)
	table.Connect(unmonitored{dial(t, b)})
	table.SetFlows("a", fixed(user(41)))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1, Groups: 1})
	want := dumped(b)
	b.Run("ovs-ofctl", "-O", "OpenFlow15", "del-groups", "unix:"+b.Management())
	table.SetFlows("b", fixed(user(42)))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1, Groups: 1})
	if diff := cmp.Diff(want, dumped(b)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{fmt.Sprint(user(42)[0])}, b.Flows()); diff != "" {
		t.Error(diff)
	}
}
