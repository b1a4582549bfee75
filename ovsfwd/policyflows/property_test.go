package policyflows

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// TestFlowsAgreeWithTheModel makes random changes. It compares the verdicts of the flows
// with the model, and the flows with those of a store that gets all input at once.
func TestFlowsAgreeWithTheModel(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.crowded = rapid.Bool().Draw(t, "crowded")
		s, r := w.store()
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			w.change(t, s)
			if rapid.IntRange(0, 3).Draw(t, "complete") == 0 {
				s.Complete()
			}
		}
		s.Complete()
		w.check(t, r)
		if fresh := w.build(); fresh.text() != r.text() {
			t.Fatalf("updated one by one:\n%s\n\nupdated at once:\n%s", r.text(), fresh.text())
		}
		if keys := slices.Sorted(maps.Keys(r.flows)); !slices.Equal(keys, slices.Sorted(maps.Keys(w.build().flows))) {
			t.Fatalf("keys are left over: %q", keys)
		}
	})
}

// TestDeletingEverythingLeavesNothing says that a store forgets.
func TestDeletingEverythingLeavesNothing(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.crowded = rapid.Bool().Draw(t, "crowded")
		s, r := w.store()
		for range 30 {
			w.change(t, s)
		}
		s.Complete()
		for name := range w.pods {
			s.RemovePod(name)
		}
		for id := range w.policies {
			s.RemovePolicy(id)
		}
		for id := range w.groups {
			s.RemoveGroup(id)
		}
		s.Complete()
		if keys := slices.Sorted(maps.Keys(r.flows)); !slices.Equal(keys, static()) {
			t.Fatalf("flows are left: %s", r.text())
		}
		if len(s.policies)+len(s.rules)+len(s.ports)+len(s.portSets[ruleEgress].all)+len(s.portSets[ruleIngress].crowded)+len(s.pods)+len(s.ids.taken)+len(s.quarantine.refused) != 0 || len(s.groups) != 1 || len(s.members) != 2 {
			t.Fatalf("left: %d policies, %d rules, %d ports, %d pods, %d ids, %d groups, %d members",
				len(s.policies), len(s.rules), len(s.ports), len(s.pods), len(s.ids.taken), len(s.groups), len(s.members))
		}
	})
}

// static are the keys of flows that depend on nothing.
func static() []string { return []string{"denied", "judged"} }

// refusing is a table that refuses flows of some keys.
type refusing struct {
	r       *recorder
	refuses func(key string) bool
	applies int
	last    string
}

func (t *refusing) Len() int { return len(t.r.flows) }

func (t *refusing) Apply(context.Context) (openflow.Result, error) {
	t.applies++
	var refused openflow.BundleError
	for _, key := range slices.Sorted(maps.Keys(t.r.flows)) {
		if t.refuses(key) {
			for _, f := range t.r.flows[key]() {
				refused.Refusals = append(refused.Refusals, openflow.Refusal{Mod: openflow.FlowMod{Flow: f, Key: key}, Reason: "no"})
				break
			}
		}
	}
	if len(refused.Refusals) > 0 {
		return openflow.Result{}, &refused
	}
	result := openflow.Result{}
	if text := t.r.text(); text != t.last {
		t.last, result.Messages = text, 1
	}
	return result, nil
}

// TestRefusedFlowsCloseTheirPods refuses random flows: the policies they were
// made of are quarantined, their pods are closed, and everything else is as
// without the refusal.
func TestRefusedFlowsCloseTheirPods(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.crowded = rapid.Bool().Draw(t, "crowded")
		s, r := w.store()
		for range 30 {
			w.change(t, s)
		}
		s.Complete()
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(r.flows)), func(key string) bool {
			return slices.Contains(static(), key) || strings.HasPrefix(key, "pod ") || len(r.flows[key]()) == 0
		})
		if len(keys) == 0 {
			t.Skip("no rules")
		}
		bad := rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 1, min(3, len(keys)), func(k string) string { return k }).Draw(t, "refused")
		table := &refusing{r: r, refuses: func(key string) bool { return slices.Contains(bad, key) }}
		p := NewProgrammer(s, table)
		now := time.Unix(1000, 0)
		p.now = func() time.Time { return now }
		got, err := p.Apply(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Refused) == 0 || table.applies != 2 {
			t.Fatalf("refused %v, after %d tries", got.Refused, table.applies)
		}
		for at := range p.refused {
			w.closed[at] = true
		}
		w.check(t, r)
		// Nothing is tried before its time, and everything is when it has come.
		if _, err = p.Apply(t.Context()); err != nil || table.applies != 3 {
			t.Fatalf("%v, after %d tries", err, table.applies)
		}
		table.refuses = func(string) bool { return false }
		now = firstTry(got.Refused)
		if got, err = p.Apply(t.Context()); err != nil || len(got.Refused) > 0 {
			t.Fatalf("%v, still refused: %v", err, got.Refused)
		}
		if len(p.refused) > 0 {
			t.Fatal("something waits for another try")
		}
		clear(w.closed)
		w.check(t, r)
		if fresh := w.build(); fresh.text() != r.text() {
			t.Fatalf("after the refusal:\n%s\n\nwithout:\n%s", r.text(), fresh.text())
		}
	})
}

func TestRefusalBacksOffAndNamesWhatIsClosed(t *testing.T) {
	s, r := newStore(model.IPv4)
	web, other := networkPolicy("web"), networkPolicy("other")
	rule := func(group model.GroupID) []model.Rule {
		return []model.Rule{{Name: "ingress[0]", Action: model.Allow, Peers: []model.GroupID{group}, AnyPort: true}}
	}
	s.UpdateGroup("a1", members("10.0.0.1"), nil)
	s.UpdateGroup("a2", members("10.0.0.2"), nil)
	s.SetPolicy(&model.Policy{ID: web, Ingress: rule("a1")})
	s.SetPolicy(&model.Policy{ID: other, Ingress: rule("a2")})
	s.SetPod(testPod(3, apply(web, other), model.Applied{}))
	s.SetPod(testPod(4, apply(other), model.Applied{}))
	s.Complete()
	table := &refusing{r: r, refuses: func(key string) bool { return key == "90 peer 10.0.0.1" }}
	p := NewProgrammer(s, table)
	now := time.Unix(1000, 0)
	p.now = func() time.Time { return now }
	for attempt := 1; attempt <= 4; attempt++ {
		got, err := p.Apply(t.Context())
		if err != nil || len(got.Refused) != 1 {
			t.Fatalf("%v, %+v", err, got.Refused)
		}
		refused := got.Refused[0]
		if refused.Object != Object || refused.Name != "networkpolicy/default/web" || refused.Rule != "ingress" || refused.Attempts != attempt ||
			!slices.Equal(refused.Closed, []string{"default/pod-3"}) || !refused.Since.Equal(time.Unix(1000, 0)) {
			t.Errorf("%+v", refused)
		}
		if want := now.Add(time.Second << (attempt - 1)); !refused.NextTry.Equal(want) {
			t.Errorf("attempt %d: next try at %s, want %s", attempt, refused.NextTry, want)
		}
		now = refused.NextTry
	}
	// Without the refused member the policy is programmed again.
	s.UpdateGroup("a1", nil, members("10.0.0.1"))
	s.Complete()
	if got, err := p.Apply(t.Context()); err != nil || len(got.Refused) > 0 {
		t.Fatalf("%v, %+v", err, got.Refused)
	}
	s.UpdateGroup("a1", members("10.0.0.1"), nil)
	s.Complete()
	if got, err := p.Apply(t.Context()); err != nil || len(got.Refused) != 1 {
		t.Fatalf("%v, %+v", err, got.Refused)
	}
	// A policy that changes is tried at once.
	s.SetPolicy(&model.Policy{ID: web, Ingress: rule("a2")})
	s.Complete()
	if got, err := p.Apply(t.Context()); err != nil || len(got.Refused) > 0 {
		t.Fatalf("%v, %+v", err, got.Refused)
	}
	// A group of flows that belongs to no policy cannot be quarantined.
	table.refuses = func(key string) bool { return key == "denied" }
	if _, err := p.Apply(t.Context()); err == nil {
		t.Error("no error")
	}
	// Nor is a broken connection a refusal.
	broken := &failing{}
	if _, err := NewProgrammer(s, broken).Apply(t.Context()); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

var errBroken = errors.New("broken")

type failing struct{}

func (failing) Len() int                                       { return 0 }
func (failing) Apply(context.Context) (openflow.Result, error) { return openflow.Result{}, errBroken }
