package managers

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

func endpoints(texts ...string) (all []model.ServiceEndpoint) {
	for _, text := range texts {
		text, local := strings.CutSuffix(text, "*")
		all = append(all, model.ServiceEndpoint{AddrPort: netip.MustParseAddrPort(text), Local: local})
	}
	return all
}

func clusterIP(a string, port uint16, e ...model.ServiceEndpoint) model.Frontend {
	return model.Frontend{Kind: model.ClusterIP, Addr: netip.MustParseAddr(a), Port: port, Endpoints: e}
}

// TestSwitchedFrontends: which cluster IPs the bridge leads to, and which are left to the host.
func TestSwitchedFrontends(t *testing.T) {
	node := pipeline.Node{PodCIDRs: prefixes("10.10.0.0/24", "fd00::/64"), ServiceCIDRs: prefixes("10.96.0.0/16", "fd00:96::/112"), GatewayMAC: make([]byte, 6), Gateways: []netip.Addr{netip.MustParseAddr("10.10.0.1")}, HostAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.100")}}
	many := slices.Repeat(endpoints("10.10.1.1:80"), pipeline.MaxEndpoints+1)
	one := clusterIP("10.96.0.1", 80, endpoints("10.10.1.1:80")...)
	for _, c := range []struct {
		name string
		id   model.ServicePortID
		time time.Duration
		f    []model.Frontend
		want int
		own  string
	}{
		{"TCP", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{one}, 1, "[]"},
		{"UDP", model.ServicePortID{Protocol: model.UDP}, 0, []model.Frontend{one}, 1, "[]"},
		{"SCTP", model.ServicePortID{Protocol: model.SCTP}, 0, []model.Frontend{one}, 0, ""},
		{"outside the prefixes of Services", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.97.0.1", 80, one.Endpoints...)}, 0, ""},
		{"both families", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{one, clusterIP("fd00:96::1", 80, endpoints("[fd01::1]:80")...)}, 2, "[]"},
		{"local endpoints, one of them without a node", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, endpoints("10.10.0.7:80", "10.10.0.8:80*", "10.10.0.8:81*", "10.10.1.1:80", "192.0.2.1:80*")...)}, 1, "[10.10.0.7 10.10.0.8 192.0.2.1]"},
		{"no endpoint", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80)}, 0, ""},
		{"as many as the bridge shares well", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, many[1:]...)}, 1, "[]"},
		{"too many", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, many...)}, 0, ""},
		{"affinity", model.ServicePortID{Protocol: model.TCP}, pipeline.MaxAffinity, []model.Frontend{one}, 1, "[]"},
		{"affinity of a day", model.ServicePortID{Protocol: model.TCP}, 24 * time.Hour, []model.Frontend{one}, 0, ""},
		{"other addresses", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{{Kind: model.NodePort, Addr: netip.IPv4Unspecified(), Port: 30080, Endpoints: one.Endpoints}, {Kind: model.ExternalIP, Addr: netip.MustParseAddr("192.0.2.9"), Port: 80, Endpoints: one.Endpoints}}, 0, ""},
		{"a Service as the endpoint", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, endpoints("10.10.1.1:80", "10.96.0.2:80")...)}, 0, ""},
		{"the end of a tunnel as the endpoint", model.ServicePortID{Protocol: model.UDP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, endpoints("192.0.2.1:6081")...)}, 0, ""},
		{"TCP at the port of a tunnel", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, endpoints("192.0.2.1:6081")...)}, 1, "[]"},
		{"this node", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, endpoints("10.10.1.1:80", "192.0.2.100:6443*")...)}, 0, ""},
		{"the gateway of this node", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, endpoints("10.10.0.1:80")...)}, 0, ""},
		{"loopback", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, endpoints("127.0.0.1:80")...)}, 0, ""},
		{"link-local", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, endpoints("169.254.20.20:80")...)}, 0, ""},
		{"multicast", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("10.96.0.1", 80, endpoints("224.0.0.1:80")...)}, 0, ""},
		{"the address that stands for a pod", model.ServicePortID{Protocol: model.TCP}, 0, []model.Frontend{clusterIP("fd00:96::1", 80, model.ServiceEndpoint{AddrPort: netip.AddrPortFrom(pipeline.Hairpin(model.IPv6), 80)})}, 0, ""},
	} {
		p := &model.ServicePort{ID: c.id, Affinity: c.time, Frontends: c.f}
		got := SwitchedFrontends(node, p)
		for i := range c.f {
			if why := LeftToHost(node, p, &c.f[i]); (why == "") != (c.want > 0) {
				t.Errorf("%s: left to the host: %q", c.name, why)
			}
		}
		if len(got) != c.want {
			t.Errorf("%s: %+v, want %d", c.name, got, c.want)
		} else if c.want > 0 {
			var own []string
			for _, a := range got[0].Own {
				own = append(own, a.String())
			}
			if text := "[" + strings.Join(own, " ") + "]"; text != c.own || got[0].Affinity != c.time {
				t.Errorf("%s: own %s, affinity %s; want %s, %s", c.name, text, got[0].Affinity, c.own, c.time)
			}
		}
	}
}

// TestServicesFollowTheMode: the flows of a Service are there while the bridge judges and is to lead to Services, and follow its endpoints.
func TestServicesFollowTheMode(t *testing.T) {
	flows := flowGroups{}
	m := NewForwardingManager("n1", pipeline.Node{
		GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6), Userspace: true, Services: true, ServiceCIDRs: prefixes("10.96.0.0/16"),
	}, flows)
	const key = "service shop/web:80/tcp"
	check := func(when string, want bool, texts ...string) {
		t.Helper()
		m.CompleteDeferredWork()
		got, there := flows[key]
		if there != want {
			t.Errorf("%s: flows of the Service: %v", when, there)
		}
		for _, text := range texts {
			if !strings.Contains(got, text) {
				t.Errorf("%s: no %s in\n%s", when, text, got)
			}
		}
	}
	id := model.ServicePortID{Namespace: "shop", Name: "web", Protocol: model.TCP, Port: 80}
	set := func(e ...string) {
		m.OnUpdate(model.ServicePortUpdate{Port: &model.ServicePort{ID: id, Frontends: []model.Frontend{clusterIP("10.96.0.1", 80, endpoints(e...)...)}}})
	}
	set("10.10.0.7:80", "10.10.1.1:80")
	check("before the node", false)
	m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: prefixes("10.10.2.0/24")}})
	check("netfilter judges", false)
	m.SetMode(pipeline.Full)
	check("the bridge judges", true, "nat(dst=10.10.1.1:80)", "nat(dst=10.10.0.7:80)", "actions=group:")
	if strings.Contains(flows[key], "nw_src") {
		t.Errorf("no endpoint is a pod of this node\n%s", flows[key])
	}
	m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: prefixes("10.10.0.0/24")}})
	check("another pod prefix", true, "nw_src=10.10.0.7")
	delete(flows, key)
	m.OnUpdate(model.EgressesUpdate{})
	m.OnUpdate(model.OffloadUpdate{Active: true})
	check("a change of the node that is none to Services", false)
	set("10.10.1.1:80")
	check("one endpoint", true, "actions=goto_table:42")
	set()
	check("no endpoint", false)
	set("10.10.1.1:80")
	check("again", true)
	m.OnUpdate(model.ServiceCIDRsUpdate{Prefixes: prefixes("10.10.1.0/24")})
	check("its endpoint is in a prefix of Services", false)
	m.OnUpdate(model.ServiceCIDRsUpdate{})
	check("and no more", true)
	m.SetMode(pipeline.Steer)
	check("netfilter judges again", false)
	m.SetMode(pipeline.BeginsInSwitch)
	check("connections to Services begin in the host", false)
	m.SetMode(pipeline.Full)
	check("the bridge judges again", true)
	m.OnUpdate(model.ServicePortRemove{ID: id})
	check("the Service is gone", false)
}
