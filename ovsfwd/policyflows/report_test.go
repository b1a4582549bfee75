package policyflows

import (
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// TestReport: while denied packets are reported, the flows that drop report, and all
// other flows stay the same. Afterwards all flows are as before.
func TestReport(t *testing.T) {
	s, r := newStore(model.IPv4, model.IPv6)
	admin := model.PolicyID{Tier: model.TierAdmin, Name: "no"}
	s.SetPolicy(&model.Policy{ID: admin, Egress: []model.Rule{{Name: "deny", Action: model.Deny, AnyPeer: true, AnyPort: true}}})
	s.SetPolicy(&model.Policy{ID: networkPolicy("web"), Ingress: []model.Rule{{Name: "allow", Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{tcp(80, 80)}}}})
	s.SetPod(testPod(3, apply(networkPolicy("web")), apply(admin)))
	closed := testPod(4, model.Applied{}, model.Applied{})
	closed.Open = false
	s.SetPod(closed)
	s.Complete()
	before := r.text()
	r.sets = nil
	s.Report(true)
	s.Complete()
	var action []string
	for _, a := range ReportActions() {
		action = append(action, a.String())
	}
	want := strings.ReplaceAll(before, "actions=drop", "actions="+strings.Join(action, ","))
	if want == before {
		t.Fatal("nothing drops: nothing is tested")
	}
	lines := func(text string) []string {
		l := strings.Split(text, "\n")
		slices.Sort(l)
		return l
	}
	if got := r.text(); !slices.Equal(lines(got), lines(want)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, key := range r.sets {
		if !slices.ContainsFunc(r.flows[key](), func(f openflow.Flow) bool { return strings.Contains(f.String(), action[1]) }) && key != JudgedKey {
			t.Errorf("the flows of %s are set, which report nothing", key)
		}
	}
	// Flows that are added meanwhile report as well.
	s.SetPod(testPod(5, apply(networkPolicy("web")), model.Applied{}))
	s.Complete()
	if text := r.text(); strings.Contains(text, "actions=drop") {
		t.Errorf("not all that drops reports:\n%s", text)
	}
	s.RemovePod("fx-5")
	r.sets = nil
	s.Report(false)
	s.Report(false)
	s.Complete()
	if got := r.text(); got != before {
		t.Errorf("got\n%s\nbefore\n%s", got, before)
	}
	if !AboutReport("flow "+openflow.Flow{Actions: ReportActions()}.String()+": no such meter") || AboutReport("flow actions=drop: no") {
		t.Error("the text of the flows does not show which of them report")
	}
}
