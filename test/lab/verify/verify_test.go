package verify_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/probe"
	"github.com/felixlike/felixlike/test/lab/verify"
	"github.com/felixlike/felixlike/test/truthtable"
)

const (
	patience = 3 * time.Second
	// step is a table of one step: allowed, allowed, denied, no expectation.
	step = `{"suite": "s", "case": "c", "step": 1, "steps": 1,
		"nodes": [{"name": "n", "ip": "192.168.50.11", "podCIDR": "10.10.0.0/24"}], "namespaces": [{"name": "x"}],
		"pods": [{"ns": "x", "name": "a", "ip": "10.10.0.10", "node": "n", "ports": [{"name": "http", "port": 80, "proto": "TCP"}]}],
		"policies": [], "clusterPolicies": [{"metadata": {"name": "deny"}, "spec": {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
			"egress": [{"action": "Deny", "to": [{"networks": ["10.10.0.0/24"]}]}]}}], "probes": [
			{"from": "x/a", "to": "x/a", "proto": "TCP", "port": 80, "expect": true},
			{"from": "x/a", "to": "x/a", "proto": "TCP", "port": 80, "expect": true},
			{"from": "x/a", "to": "x/a", "proto": "TCP", "port": 80, "expect": false},
			{"from": "x/a", "to": "x/a", "proto": "TCP", "port": 80}]}`
)

// cluster gives scripted answers, one character a probe: 1 and 0 as in an Outcome, L
// through when it is tried with patience only, - not tried.
type cluster struct {
	answers     string
	unreachable error
	asked       []lab.Probe
	state       lab.State
}

func (c *cluster) SetState(_ context.Context, s lab.State) error {
	c.state = s
	return c.unreachable
}

func (c *cluster) Probe(_ context.Context, probes []lab.Probe, timeout time.Duration) []lab.Result {
	c.asked = append(c.asked, probes...)
	results := make([]lab.Result, len(probes))
	for i, p := range probes {
		results[i] = lab.Result{Probe: p, Tried: true, Reason: probe.NoAnswer}
		switch {
		case timeout == patience:
			results[i].Through = strings.Contains(c.answers, "L")
		case c.answers[i] == '1':
			results[i].Through, results[i].Reason = true, probe.Answered
		case c.answers[i] == '-':
			results[i].Tried, results[i].Reason = false, "no socket"
		}
	}
	return results
}

func run(t *testing.T, c *cluster) (verify.Tally, verify.Outcome, error) {
	t.Helper()
	steps, err := truthtable.Read(strings.NewReader(strings.ReplaceAll(step, "\n", " ")))
	if err != nil {
		t.Fatal(err)
	}
	var tally verify.Tally
	var last verify.Outcome
	err = verify.Run(t.Context(), c, steps, verify.Options{Patience: patience}, func(o verify.Outcome) error {
		tally.Add(o)
		last = o
		return nil
	})
	return tally, last, err
}

// TestClusterPoliciesReachTheLab: a step's ClusterNetworkPolicies are part of its state, in
// the family of the run.
func TestClusterPoliciesReachTheLab(t *testing.T) {
	steps, err := truthtable.Read(strings.NewReader(strings.ReplaceAll(step, "\n", " ")))
	if err != nil {
		t.Fatal(err)
	}
	for family, want := range map[model.Family]v1alpha2.CIDR{model.IPv4: "10.10.0.0/24", model.IPv6: "fd00:10::a0a:0/120"} {
		c := &cluster{answers: "1100"}
		if err := verify.Run(t.Context(), c, steps, verify.Options{Family: family}, func(verify.Outcome) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if all := c.state.ClusterPolicies; len(all) != 1 || all[0].Name != "deny" || all[0].Spec.Egress[0].To[0].Networks[0] != want {
			t.Errorf("IPv%s: %+v", family, all)
		}
		mapped := steps[0].MapFamily(family)
		if got := mapped.ClusterPolicies[0].Spec.Egress[0].To[0].Networks[0]; got != want {
			t.Errorf("IPv%s: mapped to %s, want %s", family, got, want)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for _, test := range []struct {
		name, answers, got    string
		wrong, late, notTried int
	}{
		{"as expected", "1100", "1100", 0, 0, 0},
		{"denied comes through", "1110", "1110", 1, 0, 0},
		{"allowed never answered", "0100", "0100", 1, 0, 0},
		{"allowed answered late", "L100", "1100", 0, 1, 0},
		{"not tried, with an expectation and without", "1-0-", "1-0-", 0, 0, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			tally, o, err := run(t, &cluster{answers: test.answers})
			if !o.Reached {
				t.Error("the state is not reached")
			}
			want := verify.Tally{Steps: 1, Probes: 4, Expected: 3, Allowed: 2, Wrong: test.wrong, Late: test.late, NotTried: test.notTried}
			if tally != want || o.Got != test.got {
				t.Errorf("got %q, %+v, want %q, %+v", o.Got, tally, test.got, want)
			}
			if errors.Is(err, verify.ErrNotTried) != (test.notTried > 0) {
				t.Errorf("error %v with %d probes not tried", err, test.notTried)
			}
		})
	}
}

func TestStateNotReachedIsNotTried(t *testing.T) {
	c := &cluster{answers: "1100", unreachable: errors.New("no agent")}
	tally, o, err := run(t, c)
	if tally.NotTried != 4 || tally.Wrong != 0 || o.Got != "----" || o.Reached || len(c.asked) > 0 {
		t.Errorf("%+v, got %q, %d probes sent", tally, o.Got, len(c.asked))
	}
	if !errors.Is(err, verify.ErrNotTried) || !errors.Is(err, c.unreachable) {
		t.Errorf("error %v", err)
	}
}

func TestTooLate(t *testing.T) {
	for _, test := range []struct {
		late, allowed int
		want          bool
	}{
		{0, 100, false},
		{1, 100, false},
		{2, 100, true},
		{10, 10_000, false},
		{11, 10_000, true},
	} {
		tally := verify.Tally{Late: test.late, Allowed: test.allowed}
		if err := tally.TooLate(); errors.Is(err, verify.ErrLate) != test.want {
			t.Errorf("%d late of %d: %v", test.late, test.allowed, err)
		}
	}
}
