package policyflows

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestReject: on a real switch, a rule that rejects has its meter before its flow, and as long. Without
// meters, and once the rule denies only, it drops.
func TestReject(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn, err := openflow.Dial(b.Context(), b.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
	table.Connect(conn)
	s := New(Options{Flows: table, BoundRates: true})
	s.SetFamilies(model.Families())
	p, rates := NewProgrammer(s, table), NewRates(s)
	id := model.PolicyID{Tier: model.TierAdmin, Name: "no"}
	rule := func(a model.Action) {
		s.SetPolicy(&model.Policy{ID: id, Ingress: []model.Rule{{Name: "no", Action: a, AnyPeer: true, AnyPort: true}}})
	}
	s.SetPod(testPod(3, apply(id), model.Applied{}))
	program := func(conn Meters) (answers int, meter bool) {
		t.Helper()
		s.Complete()
		err := rates.Around(b.Context(), conn, func() error {
			got, err := p.Apply(b.Context())
			if len(got.Refused) > 0 {
				t.Errorf("refused: %v", got.Refused)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range b.Installed() {
			if strings.Contains(f.String(), RejectActions()[0].String()) {
				answers++
			}
		}
		return answers, has(t, b.Context(), rates.conn)
	}
	for _, c := range []struct {
		action  model.Action
		conn    Meters
		answers int
		meter   bool
	}{
		{model.Deny, conn, 0, false},
		{model.Reject, conn, 1, true},
		{model.Deny, conn, 0, false},
		{model.Reject, refusesMeters{conn}, 0, false},
		{model.Reject, conn, 1, true},
	} {
		rule(c.action)
		if answers, meter := program(c.conn); answers != c.answers || meter != c.meter {
			t.Errorf("%s with %T: %d flows answer, meter %t, want %d, %t", c.action, c.conn, answers, meter, c.answers, c.meter)
		}
	}
	// A quarantined policy may be back within an apply, after the meters.
	q := s.policies[side{id, model.Ingress}]
	s.quarantine.refuse(q)
	if answers, meter := program(conn); answers != 0 || !meter {
		t.Errorf("while the policy is quarantined: %d flows answer, meter %t", answers, meter)
	}
	s.quarantine.lift(q)
	if answers, _ := program(conn); answers != 1 {
		t.Errorf("after the quarantine: %d flows answer", answers)
	}
}

// TestMeteredFlowsReadBack: flows that send packets to the agent within a meter's rate are read back
// as they were written, so a full read writes nothing.
func TestMeteredFlowsReadBack(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn, err := openflow.Dial(b.Context(), b.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
	table.Connect(conn)
	s := New(Options{Flows: table, BoundRates: true})
	s.SetFamilies(model.Families())
	s.Log(true)
	if err := conn.AddMeters(b.Context(), LogMeters(), 20); err != nil {
		t.Fatal(err)
	}
	id := model.PolicyID{Tier: model.TierAdmin, Name: "no"}
	rule := model.Rule{Name: "no", Action: model.Reject, AnyPeer: true, AnyPort: true, Log: true}
	s.SetPolicy(&model.Policy{ID: id, Ingress: []model.Rule{rule}, Egress: []model.Rule{rule}})
	s.SetPod(testPod(3, apply(id), apply(id)))
	p, rates := NewProgrammer(s, table), NewRates(s)
	for _, again := range []bool{false, true} {
		table.Connect(conn) // the next apply reads
		s.Complete()
		if err := rates.Around(b.Context(), conn, func() error {
			got, err := p.Apply(b.Context())
			if again && got.Messages > 0 {
				t.Errorf("%d messages: %v", got.Messages, got.Repaired)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// refusesMeters is a switch that refuses meters.
type refusesMeters struct{ *openflow.Conn }

func (refusesMeters) AddMeters(context.Context, []uint32, uint32) error {
	return &openflow.BundleError{}
}

func has(t *testing.T, ctx context.Context, conn Meters) bool {
	t.Helper()
	found, err := FindRateMeters(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(slices.Collect(maps.Keys(found)), RejectMeter)
}
