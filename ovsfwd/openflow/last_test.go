package openflow_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/internal/ovstest"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// TestLastComesBehind: what opens is never installed before all else is, and is in
// force.
func TestLastComesBehind(t *testing.T) {
	b := ovstest.NewBridge(t)
	flows := numbered(4)
	rest, last := texts(flows[:3]), texts(flows[3:])
	table, conn := openflow.NewFlowTable(owner, 1), dial(t, b)
	table.Connect(conn)
	var refusal error
	settled := 0
	table.Last("last", func(context.Context) error {
		settled++
		if got := b.Flows(); !slices.Equal(got, rest) {
			t.Errorf("while the others settle: %q, want %q", got, rest)
		}
		return refusal
	})
	table.SetFlows("last", fixed(flows[3:]))
	table.SetFlows("other", fixed(flows[:3]))
	step := func(what string, settles, messages int, want ...string) {
		t.Helper()
		settled = 0
		r, err := table.Apply(b.Context())
		if !errors.Is(err, refusal) {
			t.Fatalf("%s: %v", what, err)
		}
		slices.Sort(want)
		if got := b.Flows(); !slices.Equal(got, want) {
			t.Errorf("%s: installed %q, want %q", what, got, want)
		}
		if settled != settles || r.Messages != messages {
			t.Errorf("%s: settled %d times, %d messages; want %d and %d", what, settled, r.Messages, settles, messages)
		}
	}
	all := append(slices.Clone(rest), last...)
	step("at first", 1, 4, all...)
	step("once more", 0, 0, all...)

	ofctl(b, []string{"del-flows", "cookie=0xf11c010000000000/0xffff000000000000"})
	if err := conn.Barrier(b.Context()); err != nil {
		t.Fatal(err)
	}
	refusal = errors.New("no daemon")
	step("removed, and not in force in time", 1, 3, rest...)
	step("still not", 1, 0, rest...)
	refusal = nil
	step("in force", 1, 1, all...)
}
