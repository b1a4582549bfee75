package service_test

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/felixlike/service"
	"github.com/felixlike/felixlike/model"
)

// TestLimit: an endpoint that the namespace of the Service may not lead to is left out and named, and comes once it may. An endpoint that is not ready is known.
func TestLimit(t *testing.T) {
	e := service.New("node1")
	allowed := map[string]bool{"10.0.0.1": true, "10.0.0.3": true}
	e.Limit(func(namespace string, a netip.Addr) bool { return namespace == "shop" && allowed[a.String()] })
	e.SetService(newService(t, "{metadata: {name: db}, spec: {clusterIPs: [10.96.0.1], ports: [{port: 80}]}}"))
	e.SetEndpointSlice(newSlice(t, "db-1 db =8080/TCP 10.0.0.1 10.0.0.2 10.0.0.3,unready"))
	check := func(what string, endpoints, known int, named bool) {
		t.Helper()
		e.Flush()
		p := e.Served(types.NamespacedName{Namespace: "shop", Name: "db"})[0]
		if len(p.Frontends[0].Endpoints) != endpoints || len(p.Serving) != endpoints || len(p.Known) != known {
			t.Errorf("%s: %+v", what, p)
		}
		problems := e.Problems()
		if named != (len(problems) == 1 && strings.Contains(problems[0].Reason, "10.0.0.2 is left out")) || !named && len(problems) > 0 {
			t.Errorf("%s: problems %v", what, problems)
		}
	}
	check("another tenant's endpoint", 1, 2, true)
	allowed["10.0.0.2"] = true
	e.Reconsider(func(string, netip.Addr) bool { return false })
	if all := e.Flush(); len(all) > 0 {
		t.Errorf("nothing has changed: %v", all)
	}
	e.Reconsider(func(_ string, a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.2") })
	if all := e.Flush(); len(all) != 1 || all[0].(model.ServicePortUpdate).Port.ID.Name != "db" {
		t.Errorf("updates: %v", all)
	}
	check("joined", 2, 3, false)
	delete(allowed, "10.0.0.2")
	e.Reconsider(func(string, netip.Addr) bool { return true })
	check("isolated", 1, 2, true)
}

// TestLimitTunnels: an endpoint at the port of a tunnel is left out and named, if Services are limited.
func TestLimitTunnels(t *testing.T) {
	for _, limited := range []bool{true, false} {
		e := service.New("node1")
		if limited {
			e.Limit(func(string, netip.Addr) bool { return true })
		}
		e.SetService(newService(t, "{metadata: {name: db}, spec: {clusterIPs: [10.96.0.1], ports: [{name: udp, port: 80, protocol: UDP}, {name: tcp, port: 80}]}}"))
		e.SetEndpointSlice(newSlice(t, "db-1 db udp=4789/UDP tcp=4789/TCP 10.0.0.1"))
		e.Flush()
		for _, p := range e.Served(types.NamespacedName{Namespace: "shop", Name: "db"}) {
			if want := !limited || p.ID.Protocol == model.TCP; (len(p.Frontends[0].Endpoints) == 1) != want {
				t.Errorf("limited %t, %s: %+v", limited, p.ID.Protocol, p.Frontends)
			}
		}
		if problems := e.Problems(); limited != (len(problems) == 1 && strings.Contains(problems[0].Reason, "10.0.0.1 is left out: its port is one of a tunnel")) {
			t.Errorf("limited %t: problems %v", limited, problems)
		}
	}
}

// TestSetPrefixes: a cluster IP outside the prefixes is not served and named, until one has it.
func TestSetPrefixes(t *testing.T) {
	e := service.New("node1")
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24")}
	e.SetPrefixes(prefixes)
	e.SetService(newService(t, "{metadata: {name: db}, spec: {type: NodePort, clusterIPs: [10.97.0.1, 'fd00::1'], ports: [{port: 80, nodePort: 30080}]}}"))
	check := func(what string, frontends int) {
		t.Helper()
		e.Flush()
		if got := e.Served(types.NamespacedName{Namespace: "shop", Name: "db"})[0].Frontends; len(got) != frontends {
			t.Errorf("%s: %+v", what, got)
		}
		if problems := e.Problems(); (frontends < 4) != (len(problems) == 1 && strings.Contains(problems[0].Reason, "10.97.0.1 is in none of the prefixes")) {
			t.Errorf("%s: problems %v", what, problems)
		}
	}
	check("outside", 3)
	e.SetPrefixes(append(prefixes, netip.MustParsePrefix("10.97.0.0/16")))
	check("inside", 4)
	e.SetPrefixes(prefixes)
	check("outside again", 3)
}
