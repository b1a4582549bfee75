package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

func shown(t *testing.T, s control.Status, f Filter, format terminal.Output) string {
	t.Helper()
	var b bytes.Buffer
	if err := Status(&b, s, f, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSummary: the first line says whether the node is ready, and all reasons.
func TestSummary(t *testing.T) {
	good := control.Status{InSync: true, Endpoints: status().Endpoints[:1], Policies: status().Policies}
	noted := good
	noted.Problems, noted.Endpoints = status().Problems, status().Endpoints
	waits := good
	waits.InSync, waits.Observed = false, 1
	for want, s := range map[string]control.Status{
		"Ready: 1 pod, 1 policy": good,
		"Ready: 1 pod is closed; 1 problem of objects; 2 pods, 1 policy":                                                      noted,
		"Degraded: the first listing of the datastore is not complete; a change is not programmed yet; 1 pod, 1 policy":       waits,
		"Degraded: the last apply failed; 2 objects are quarantined; 1 pod is closed; 1 problem of objects; 2 pods, 1 policy": status(),
		"Degraded: the first listing of the datastore is not complete; no pods":                                               {},
	} {
		if line, _, _ := strings.Cut(shown(t, s, Filter{}, terminal.Text), "\n"); line != want {
			t.Errorf("got  %s\nwant %s", line, want)
		}
	}
}

// TestFilters: a filter leaves out what it does not name, also of JSON, and never the summary.
func TestFilters(t *testing.T) {
	s := status()
	s.Endpoints = append(s.Endpoints, control.Endpoint{Namespace: "y", Name: "db", State: control.EndpointProgrammed})
	s.Policies = append(s.Policies, control.Policy{Tier: "networkpolicy", Namespace: "y", Name: "other"})
	s.Problems = append(s.Problems, model.Problem{Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: "y", Name: "worse"}, Reason: "broken too"})
	for _, c := range []struct {
		filter     Filter
		names      string
		has, lacks []string
	}{
		{Filter{}, "x/web x/lost y/db", []string{"x/base", "y/other", "x/bad", "y/worse", "quarantined (2)", "foreign changes"}, nil},
		{Filter{Namespace: "y"}, "y/db", []string{"y/other", "y/worse"}, []string{"x/base", "x/bad", "quarantined (", "foreign changes"}},
		{Filter{Namespace: "x"}, "x/web x/lost", []string{"x/base", "x/bad", "quarantined (1)"}, []string{"y/other", "y/worse"}},
		{Filter{Pod: "x/web"}, "x/web", []string{"quarantined (1)"}, []string{"x/lost", "y/other", "x/bad"}},
		{Filter{Faults: true}, "x/lost", []string{"x/bad", "y/worse", "quarantined (2)"}, []string{"y/other", "y/db"}},
		{Filter{Namespace: "none"}, "", nil, []string{"x/", "y/"}},
	} {
		text := shown(t, s, c.filter, terminal.Text)
		summary, body, _ := strings.Cut(text, "\n")
		if !strings.HasSuffix(summary, "; 3 pods, 2 policies") {
			t.Errorf("%+v: the summary is %s", c.filter, summary)
		}
		for _, want := range c.has {
			if !strings.Contains(body, want) {
				t.Errorf("%+v: no %q in\n%s", c.filter, want, body)
			}
		}
		_, body, _ = strings.Cut(body, "writes since start")
		for _, bad := range c.lacks {
			if strings.Contains(body, bad) {
				t.Errorf("%+v: %q in\n%s", c.filter, bad, body)
			}
		}
		if got := strings.Join(strings.Fields(shown(t, s, c.filter, terminal.Name)), " "); got != c.names {
			t.Errorf("%+v: names %q, want %q", c.filter, got, c.names)
		}
		if object := shown(t, s, c.filter, terminal.JSON); strings.Contains(object, `"name": "db"`) != strings.Contains(c.names, "y/db") {
			t.Errorf("%+v: JSON %s", c.filter, object)
		}
	}
	if len(s.Endpoints) != 3 || len(s.Problems) != 2 {
		t.Error("the filters changed the status")
	}
}
