package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

func status() control.Status {
	return control.Status{
		Node: "node1", Backend: "nftables", Datastore: "manifests", InSync: true, Observed: 7, Programmed: 7, StartedAt: time.Now(),
		Writes: map[string]int{"nftables": 12},
		Endpoints: []control.Endpoint{
			{Namespace: "x", Name: "web", State: control.EndpointProgrammed, Interface: "flx1", Addresses: []string{"10.10.0.5"}, IngressPolicies: []string{"x/base"}},
			{Namespace: "x", Name: "lost", State: control.EndpointClosed},
		},
		Policies: []control.Policy{{Tier: "networkpolicy", Namespace: "x", Name: "base", IngressRules: 2, Endpoints: 1}},
		Problems: []model.Problem{{Source: "a.yaml", Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: "x", Name: "bad"}, Field: "spec.ingress[0]", Reason: "broken"}},
	}
}

func TestStatusText(t *testing.T) {
	var b bytes.Buffer
	if err := Status(&b, status(), "text"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"node node1   backend nftables", "revision 7 programmed of 7", "nftables 12",
		"x/web   programmed  flx1       10.10.0.5  x/base   open", "x/lost  closed",
		"x/base  networkpolicy", "a.yaml: NetworkPolicy x/bad: spec.ingress[0]: broken",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

func TestStatusJSONRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := Status(&b, status(), "json"); err != nil {
		t.Fatal(err)
	}
	var back control.Status
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Endpoints[0].Name != "web" || back.Problems[0].Reason != "broken" {
		t.Errorf("%v %+v", err, back)
	}
}

func TestUnknownFormatIsRefused(t *testing.T) {
	if err := Status(&bytes.Buffer{}, status(), "xml"); err == nil {
		t.Error("xml was accepted")
	}
}
