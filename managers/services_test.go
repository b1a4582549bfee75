package managers

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestServicePrefixes(t *testing.T) {
	s := newServicePrefixes(prefixes("10.96.0.0/16", "fd00:96::/112"))
	for _, c := range []struct {
		served  []netip.Prefix
		want    string
		changed bool
	}{
		{prefixes("10.96.0.0/16"), "[10.96.0.0/16 fd00:96::/112]", false},
		{prefixes("10.96.128.0/24", "10.112.0.0/16"), "[10.96.0.0/16 10.112.0.0/16 fd00:96::/112]", true},
		{prefixes("10.96.0.0/12", "fd00::/64"), "[10.96.0.0/12 fd00::/64 fd00:96::/112]", true},
		{nil, "[10.96.0.0/16 fd00:96::/112]", true},
	} {
		if changed := s.set(c.served); changed != c.changed || fmt.Sprint(s.all) != c.want {
			t.Errorf("%v: %v, changed %v; want %s, %v", c.served, s.all, changed, c.want, c.changed)
		}
	}
}

// TestForwardingOfServices: packets to the datastore's prefixes go to the host, like
// packets to the configured ones.
func TestForwardingOfServices(t *testing.T) {
	flows := flowGroups{}
	m := NewForwardingManager("n1", pipeline.Node{
		GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6), Userspace: true, Mode: pipeline.Full, ServiceCIDRs: prefixes("10.96.0.0/16"),
	}, flows)
	m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: prefixes("10.10.0.0/24")}})
	check := func(when string, want ...string) {
		t.Helper()
		m.CompleteDeferredWork()
		for _, p := range []string{"10.96.0.0/16", "10.112.0.0/16", "fd00:96::/112"} {
			wanted := strings.Contains(strings.Join(want, " "), p)
			if has := strings.Contains(flows["base"], "_dst="+p+" "); has != wanted {
				t.Errorf("%s: flow for %s: %v\n%s", when, p, has, flows["base"])
			}
		}
	}
	check("configured", "10.96.0.0/16")
	m.OnUpdate(model.ServiceCIDRsUpdate{Prefixes: prefixes("10.112.0.0/16", "fd00:96::/112")})
	check("served", "10.96.0.0/16", "10.112.0.0/16", "fd00:96::/112")
	m.OnUpdate(model.ServiceCIDRsUpdate{Prefixes: prefixes("fd00:96::/112")})
	check("one less", "10.96.0.0/16", "fd00:96::/112")
}
