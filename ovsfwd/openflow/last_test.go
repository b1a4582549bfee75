package openflow_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestLastComesBehind: the last group is never installed before all other flows are
// installed and in force.
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

// mute is a switch whose answer to a bundle is lost with the connection.
type mute struct{ *openflow.Conn }

var errMute = errors.New("no answer")

func (m *mute) Bundle(ctx context.Context, mods iter.Seq2[openflow.FlowMod, error]) error {
	return errors.Join(m.Conn.Bundle(ctx, mods), m.Close(), errMute)
}

// TestLastSettlesWhatWasNotAnswered: flows that were sent over a lost connection may
// be in the switch, and not yet in force.
func TestLastSettlesWhatWasNotAnswered(t *testing.T) {
	b := ovstest.NewBridge(t)
	flows := numbered(2)
	table, settled := openflow.NewFlowTable(owner, 1), 0
	table.Last("last", func(context.Context) error {
		settled++
		return nil
	})
	table.SetFlows("other", fixed(flows[:1]))
	table.SetFlows("last", fixed(flows[1:]))
	table.Connect(&mute{dial(t, b)})
	if _, err := table.Apply(b.Context()); !errors.Is(err, errMute) {
		t.Fatal(err)
	}
	if got := b.Flows(); !slices.Equal(got, texts(flows[:1])) {
		t.Fatalf("without an answer: %q", got)
	}
	table.Connect(dial(t, b))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
	if settled != 1 {
		t.Errorf("settled %d times, want 1", settled)
	}
}

// TestPanicInApply: after a panic in a callback the table can be applied again. Its
// caller recovers (felixlike.Stage).
func TestPanicInApply(t *testing.T) {
	b := ovstest.NewBridge(t)
	flows := numbered(2)
	table, panics := openflow.NewFlowTable(owner, 1), true
	table.Last("last", func(context.Context) error {
		if panics {
			panic("no settling")
		}
		return nil
	})
	table.SetFlows("other", fixed(flows[:1]))
	table.SetFlows("last", fixed(flows[1:]))
	table.Connect(dial(t, b))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = table.Apply(b.Context())
	}()
	panics = false
	if _, err := table.Apply(b.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.Flows(); !slices.Equal(got, texts(flows)) {
		t.Errorf("after the panic: %q", got)
	}
}
