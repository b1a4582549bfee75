package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/truthtable"
)

func stepsOf(t *testing.T) []truthtable.Step {
	t.Helper()
	steps, err := truthtable.ReadFile("../../../../test/truthtable/testdata/sample.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func modelOf(t *testing.T, step truthtable.Step, node int) *control.Model {
	t.Helper()
	o := step.Objects(model.IPv4)
	var addresses []netip.Addr
	for _, a := range o.Nodes[node].Status.Addresses {
		if address, err := netip.ParseAddr(a.Address); err == nil {
			addresses = append(addresses, address)
		}
	}
	m, problems, err := wanted.FromEvents(wanted.Events(control.Objects{
		Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies,
	}), o.Nodes[node].Name, &control.Model{Settings: control.Settings{Masquerade: true}, LogsReported: true, HostAddresses: addresses})
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	return m
}

func sideOf(t *testing.T, m *control.Model, backend string) *side {
	t.Helper()
	s, err := wanted.Of(m, backend)
	if err != nil {
		t.Fatal(err)
	}
	return &side{title: backend, state: s, model: m}
}

// judged has minutes for its proof, or none.
func judged(t *testing.T, a, b *side, proof time.Duration) verdicts {
	t.Helper()
	r, err := verdictsWithin(t.Context(), a, b, compare.Options{OnlyOurs: true}, proof)
	if err != nil {
		t.Fatal(err)
	}
	return r.(verdicts)
}

// All backends judge every packet alike, in every step of the truth table.
func TestBackendsJudgeAlike(t *testing.T) {
	for i, step := range stepsOf(t) {
		if testing.Short() && i%4 != 0 {
			continue
		}
		m := modelOf(t, step, i%len(step.Nodes))
		reference := sideOf(t, m, config.NFTables)
		for _, backend := range []string{config.IPTablesNFT, config.OpenFlow} {
			v := judged(t, reference, sideOf(t, m, backend), 0)
			if v.Packets == 0 || v.different() {
				var b strings.Builder
				_ = v.text(&b, terminal.Style{})
				t.Errorf("%s, %s: %s", step.String(), backend, b.String()[:min(b.Len(), 3000)])
			}
		}
	}
}

// TestVerdictsSayWhatTheyAre: the report is a sample unless it is proved that no packet tells the sides apart, and says what the proof has found, or why
// there is none.
func TestVerdictsSayWhatTheyAre(t *testing.T) {
	var m *control.Model
	var first, wrong *side
	for _, step := range stepsOf(t) {
		m = modelOf(t, step, 0)
		first, wrong = sideOf(t, m, config.NFTables), sideOf(t, m, config.NFTables)
		if tamper(wrong.state) != "" && judged(t, first, wrong, 0).different() {
			break
		}
	}
	rejecting, foreign, busy := sideOf(t, m, config.NFTables), sideOf(t, m, config.NFTables), sideOf(t, m, config.NFTables)
	for _, table := range rejecting.state.Tables {
		for _, c := range table.Chains {
			for i := range c.Rules {
				if strings.HasPrefix(c.Rules[i].Comment, "isolated") {
					c.Rules[i].Action = tables.Reject{With: tables.AdminProhibited, PerSecond: 1}
				}
			}
		}
	}
	foreign.state.Tables[0].Chains[0].Rules = append([]dump.Rule{{Foreign: "ip ttl 3 drop"}}, foreign.state.Tables[0].Chains[0].Rules...)
	busy.busy = true
	behind := sideOf(t, m, config.IPTablesNFT)
	for _, table := range behind.state.Tables {
		if c := table.Chain("FORWARD"); c != nil {
			c.Rules = append(c.Rules, dump.Rule{Foreign: "-A FORWARD -m string --string x -j DROP"})
		}
	}
	for name, test := range map[string]struct {
		other                     *side
		sample, different, differ bool
		text                      string
	}{
		"proved":                    {sideOf(t, m, config.IPTablesNFT), false, false, false, "no verdict differs: proved for all packets"},
		"later packets":             {sideOf(t, m, config.OpenFlow), true, false, false, "(a sample of all packets)\nnot proved: Later packets of connections"},
		"a reject and a drop":       {rejecting, true, true, true, "(a sample of all packets)\nbut felixctl prove tells the sides apart, for example: "},
		"the agent was programming": {busy, true, false, false, "not proved: the agent was programming"},
		"a verdict differs":         {wrong, true, true, false, "verdicts that differ: "},
		"others behind":             {behind, true, false, false, "(a sample of all packets)\nassumed: That rules of other programs behind felixlike's do the same. They differ: "},
		"an unknown rule":           {foreign, true, true, false, "unknown: "},
	} {
		v := judged(t, first, test.other, 5*time.Minute)
		var text, page bytes.Buffer
		if err := errors.Join(v.text(&text, terminal.Style{}), v.markdown(&page)); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(document{View: verdictsView, Report: v})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Report struct {
				Sample  *bool
				Packets int
				Differs []any
				Assumed []string
			}
		}
		if err := json.Unmarshal(data, &got); err != nil || got.Report.Sample == nil || *got.Report.Sample != test.sample || got.Report.Packets != v.Packets || len(got.Report.Differs) > 0 != test.differ || len(got.Report.Assumed) > 0 != strings.Contains(test.text, "assumed: ") {
			t.Errorf("%s: %v, %s", name, err, data)
		}
		if v.different() != test.different || !strings.Contains(text.String(), test.text) || !strings.Contains(page.String(), test.text) {
			t.Errorf("%s: different %v\n%s", name, v.different(), text.String())
		}
	}
}

// TestSampleWithinTimeout: a proof that --timeout leaves no time for does not cost the sample. An interrupt ends both.
func TestSampleWithinTimeout(t *testing.T) {
	m := modelOf(t, stepsOf(t)[1], 0)
	a, b := sideOf(t, m, config.NFTables), sideOf(t, m, config.IPTablesNFT)
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	r, err := verdictsOf(ctx, a, b, compare.Options{OnlyOurs: true})
	if v, ok := r.(verdicts); err != nil || !ok || v.Packets == 0 || !v.Sample || !slices.Equal(v.NotProved, []string{"the proof does not end within --timeout"}) {
		t.Errorf("%v, %+v", err, r)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := verdictsOf(ctx, a, b, compare.Options{OnlyOurs: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// A rule that is wrong in one backend is found and named.
func TestWrongRuleIsFound(t *testing.T) {
	steps := stepsOf(t)
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.OpenFlow} {
		found := false
		for _, step := range steps {
			m := modelOf(t, step, 0)
			wrong := sideOf(t, m, backend)
			policy := tamper(wrong.state)
			if policy == "" {
				continue
			}
			v := judged(t, sideOf(t, m, config.NFTables), wrong, 0)
			if len(v.Changed) == 0 {
				continue // no packet reaches that rule
			}
			found = true
			r, err := structureOf(t.Context(), sideOf(t, m, backend), wrong, compare.Options{OnlyOurs: true})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := r.text(&b, terminal.Style{}); err != nil || !strings.Contains(b.String(), policy) {
				t.Errorf("%s: %s is not named in\n%s", backend, policy, b.String())
			}
			break
		}
		if !found {
			t.Errorf("%s: no wrong rule was found in any step", backend)
		}
	}
}

// A rule of another program is found, although no model names what it tests.
func TestForeignConstantIsFound(t *testing.T) {
	const port = 4444
	m := modelOf(t, stepsOf(t)[1], 0)
	for _, backend := range []string{config.NFTables, config.IPTablesNFT} {
		wrong := sideOf(t, m, backend)
		for _, table := range wrong.state.Tables {
			for _, c := range table.Chains {
				// As at the head of all chains that policies have: the first that a packet passes decides.
				if c.Hook == nil && len(c.Rules) > 0 {
					allow := dump.Rule{Rule: tables.Rule{Matches: []tables.Match{tables.MatchProtocol{Protocol: model.TCP}, tables.MatchDestinationPorts{First: port, Last: port}}, Action: tables.Accept{}}}
					c.Rules = slices.Insert(c.Rules, 0, allow)
				}
			}
		}
		v := judged(t, sideOf(t, m, backend), wrong, 0)
		if len(v.Changed) == 0 || slices.ContainsFunc(v.Changed, func(c compare.Verdict) bool { return c.Port != port }) {
			t.Errorf("%s: %d packets, differences %v", backend, v.Packets, v.Changed)
		}
	}
}

// tamper makes an allow rule of a policy drop, and returns the policy.
func tamper(s *dump.State) string {
	for _, table := range s.Tables {
		for _, c := range table.Chains {
			for i := range c.Rules {
				r := &c.Rules[i]
				if strings.HasSuffix(r.Comment, "]") && r.Action == (tables.Accept{}) {
					r.Action = tables.Drop{}
					return r.Comment
				}
			}
		}
	}
	for _, f := range s.Flows {
		// A clause of a rule's ports, or peers.
		if f.Table == 90 && len(f.Actions) == 1 {
			if c, ok := f.Actions[0].(flowtext.Conjunction); ok && c.K == 1 {
				f.Actions = nil
				return "table 90"
			}
		}
	}
	return ""
}
