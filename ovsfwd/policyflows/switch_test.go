package policyflows

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/ovstest"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// onSwitch returns a programmer of a new store on a bridge.
func onSwitch(t *testing.T, b *ovstest.Bridge) (*Store, *Programmer) {
	t.Helper()
	conn, err := openflow.Dial(b.Context(), b.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
	table.Connect(conn)
	s := New(Options{Flows: table})
	s.SetFamilies([]model.Family{model.IPv4})
	return s, NewProgrammer(s, table)
}

// TestFullLane has as many rules of one port and one pod as a lane may have:
// their flows are the longest there are, and are installed and read back.
func TestFullLane(t *testing.T) {
	b := ovstest.NewBridge(t)
	for _, rules := range []int{laneSize, laneSize + 1} {
		for _, wants := range []string{"load", "restart"} {
			s, p := onSwitch(t, b)
			id := networkPolicy("many")
			policy := &model.Policy{ID: id}
			for range rules {
				policy.Ingress = append(policy.Ingress, model.Rule{
					Action: model.Allow, Peers: []model.GroupID{"a1"}, Ports: []model.PortRange{tcp(80, 80)},
				})
			}
			s.UpdateGroup("a1", members("10.0.0.1"), nil)
			s.SetPolicy(policy)
			s.SetPod(testPod(3, apply(id), model.Applied{}))
			s.Complete()
			got, err := p.Apply(b.Context())
			if err != nil || len(got.Refused) > 0 {
				t.Fatalf("%d rules, %s: %v, refused %v", rules, wants, err, got.Refused)
			}
			if wrote := got.Messages > 0; wrote != (wants == "load") {
				t.Errorf("%d rules, %s: %d messages", rules, wants, got.Messages)
			}
		}
	}
}

// TestSwitchRefusesFlows has a switch that takes but some flows into a table:
// the same apply quarantines the refused flows and programs all others.
func TestSwitchRefusesFlows(t *testing.T) {
	b := ovstest.NewBridge(t)
	limit := func(flows string) {
		b.Run("ovs-vsctl", "--db=unix:"+b.Daemons.DBSocket(), "--", "--id=@t", "create", "Flow_Table", "flow_limit="+flows,
			"overflow_policy=refuse", "--", "set", "Bridge", "br-int", "flow_tables:50=@t")
	}
	s, p := onSwitch(t, b)
	var ids []model.PolicyID
	for n := range 20 {
		id := networkPolicy(fmt.Sprintf("policy-%02d", n))
		group := model.GroupID(fmt.Sprintf("a%d", n))
		ids = append(ids, id)
		s.UpdateGroup(group, members(fmt.Sprintf("10.0.0.%d", n+1)), nil)
		s.SetPolicy(&model.Policy{ID: id, Egress: []model.Rule{{Action: model.Allow, Peers: []model.GroupID{group}, AnyPort: true}}})
		s.SetPod(testPod(n+3, model.Applied{}, apply(id)))
	}
	s.Complete()
	limit("50")
	watch := stopwatch.Start(t)
	got, err := p.Apply(b.Context())
	if err != nil {
		t.Fatal(err)
	}
	took := watch.Lap(t)
	t.Logf("%d of %d policies are quarantined, after %v", len(got.Refused), len(ids), took)
	if len(got.Refused) == 0 || len(got.Refused) >= len(ids) || took.Net() > time.Second {
		t.Errorf("%d refused after %v: %+v", len(got.Refused), took, got.Refused)
	}
	installed := b.Installed()
	for n, id := range ids {
		refused := slices.ContainsFunc(got.Refused, func(r tables.Refusal) bool { return r.Name == id.String() })
		closed := fmt.Sprintf("table=45,priority=64989,ip,nw_src=10.10.1.%d actions=drop", n+3)
		want, err := ovstest.ParseFlow(closed)
		if err != nil {
			t.Fatal(err)
		}
		if has := slices.ContainsFunc(installed, func(f *flowtext.Flow) bool { return f.String() == want.String() }); has != refused {
			t.Errorf("%s: refused %t, closed %t", id, refused, has)
		}
	}
	limit("1000")
	next := firstTry(got.Refused)
	p.now = func() time.Time { return next.Add(time.Hour) }
	if got, err = p.Apply(b.Context()); err != nil || len(got.Refused) > 0 {
		t.Errorf("%v, still refused: %v", err, got.Refused)
	}
}

// noLog is the flow table of a switch that refuses all flows that log.
type noLog struct {
	Table
	store *Store
	log   RuleID
}

func (n noLog) Apply(ctx context.Context) (openflow.Result, error) {
	if !n.store.Logged() {
		return n.Table.Apply(ctx)
	}
	flow := n.store.renderer.ruleFlows(n.log)[0]
	return openflow.Result{}, &openflow.BundleError{Refusals: []openflow.Refusal{
		{Mod: openflow.FlowMod{Key: ruleKey(n.log), Flow: flow}, Reason: "no"},
	}}
}

// TestSwitchRefusesLogAndReports has a switch that refuses flows that log, and one without the
// meter of reports: the same apply programs the policy without them, and closes no pod.
func TestSwitchRefusesLogAndReports(t *testing.T) {
	b := ovstest.NewBridge(t)
	s, p := onSwitch(t, b)
	id := model.PolicyID{Tier: model.TierAdmin, Name: "guard"}
	p.table = noLog{p.table, s, RuleID{Policy: id, Direction: model.Ingress}}
	s.SetPolicy(&model.Policy{ID: id, Ingress: []model.Rule{
		{Name: "allow", Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{tcp(80, 80)}, Log: true},
		{Name: "deny", Action: model.Deny, AnyPeer: true, AnyPort: true},
	}})
	s.SetPod(testPod(3, apply(id), model.Applied{}))
	s.Complete()
	if got, err := p.Apply(b.Context()); err != nil || len(got.Refused) > 0 {
		t.Fatalf("%v, refused %v", err, got.Refused)
	}
	installed := func() []string {
		var all []string
		for _, f := range b.Installed() {
			all = append(all, f.String())
		}
		slices.Sort(all)
		return all
	}
	before := installed()
	for name, turnOn := range map[string]func(){"the log": func() { s.Log(true) }, "reports": func() { s.Report(true) }} {
		turnOn()
		s.Complete()
		got, err := p.Apply(b.Context())
		if err != nil || len(got.Refused) > 0 || s.Logged() || s.Reported() {
			t.Errorf("%s: %v, refused %v, logged %t, reported %t", name, err, got.Refused, s.Logged(), s.Reported())
		}
		if after := installed(); !slices.Equal(after, before) {
			t.Errorf("%s: got %v, want %v", name, after, before)
		}
	}
}
