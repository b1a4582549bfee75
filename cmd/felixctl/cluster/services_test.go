package cluster

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// TestServicesOfAllNodes: nodes that serve a port alike share a line, others have one of their own; a node on which another program
// serves, or without an answer, is named.
func TestServicesOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""), pod("n3", ""))
	served := func(inside ...string) control.Services {
		p := control.ServicePort{Protocol: model.TCP, Port: 80, Frontends: []control.ServiceFrontend{{Kind: "clusterIP", Address: netip.MustParseAddr("10.96.0.1"), Port: 80}}}
		for _, why := range inside {
			p.Endpoints = append(p.Endpoints, control.ServiceEndpoint{Address: netip.MustParseAddrPort("10.10.0.2:8080"), Inside: why})
		}
		return control.Services{Proxy: true, Services: []control.Service{{Namespace: "shop", Name: "web", Ports: []control.ServicePort{p}}}}
	}
	k.answer(t, "n1", "services -o json", 0, served("used", "used"))
	k.answer(t, "n2", "services -o json", 0, served("used", "other zone"))
	k.answer(t, "n3", "services -o json", 0, served("used", "used"))
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "--node", "n3", "services")
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	expect(t, out, "shop/web", "80/tcp", "10.96.0.1", "2 of 2", "n1, n3")
	expect(t, out, "shop/web", "1 of 2", "n2")
	code, out = run(t.Context(), "", "--node", "n1", "--node", "n2", "--node", "n3", "services", "-o", "json")
	var all servedServices
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 || len(all.Ports) != 2 || len(all.Ports[0].Nodes) != 2 {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}

	wrong := served("used")
	wrong.Services[0].Problems = []model.Problem{{Object: model.ObjectRef{Kind: "Service", Namespace: "shop", Name: "web"}, Field: "spec", Reason: "is odd"}}
	k.answer(t, "n1", "services shop/web -o json", 0, wrong)
	k.answer(t, "n2", "services shop/web -o json", 0, wrong)
	if code, out = run(t.Context(), "", "--node", "n1", "--node", "n2", "services", "shop/web"); code != 1 || strings.Count(out, "is odd") != 1 || !strings.Contains(out, "all 2 nodes") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	k.answer(t, "n1", "services -o json", 0, control.Services{})
	k.answer(t, "n2", "services -o json", 2, "")
	code, out = run(t.Context(), "", "services")
	if code != 2 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	expect(t, out, "n1", "another program serves Services")
}
