package managers

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/multitenant"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/ovstest"
)

// multitenantManager returns a manager of a node of the reference, with its nodes.
func multitenantManager(node string, flows Flows) *MultitenantManager {
	m := NewMultitenantManager(MultitenantOptions{
		Node: node, GatewayPort: 2, TunnelPort: 1, GatewayMAC: ovsdb.GatewayMAC(node), Cluster: netip.MustParsePrefix("10.128.0.0/14"),
		Services: []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")},
	}, flows)
	for name, at := range map[string][2]string{"node1": {"172.22.122.8", "10.131.0.0/23"}, "node2": {"172.22.122.9", "10.128.2.0/23"}} {
		m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: name, Addresses: []netip.Addr{netip.MustParseAddr(at[0])}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(at[1])}}})
	}
	return m
}

func (m *MultitenantManager) pod(namespace string, port uint32, address string, policies ...model.PolicyID) model.PodID {
	a := netip.MustParseAddr(address)
	ip := a.As4()
	id := model.PodID{Namespace: namespace, Name: "pod"}
	m.OnUpdate(model.AttachmentUpdate{Attachment: &model.Attachment{
		Pod: id, Interface: "v-" + namespace, OFPort: port, MAC: net.HardwareAddr{0x0a, 0x58, ip[0], ip[1], ip[2], ip[3]}, Addresses: []netip.Addr{a},
	}})
	m.OnUpdate(model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id, Ingress: model.Applied{Admin: append([]model.PolicyID{model.IsolationOf(namespace)}, policies...)}}})
	return id
}

// TestMultitenantReference installs what the manager makes of the objects of both nodes of the reference on a switch: all rows F110 to F142 are there.
func TestMultitenantReference(t *testing.T) {
	for _, test := range []struct {
		node      string
		objects   func(m *MultitenantManager)
		scenarios []string
	}{
		{"node1", func(m *MultitenantManager) {
			m.pod("dev", 96, "10.131.1.152")
			m.pod("other", 17, "10.131.1.73")
			m.OnUpdate(model.ServicePortUpdate{Port: &model.ServicePort{
				ID:        model.ServicePortID{Namespace: "dev", Name: "web", Protocol: model.TCP, Port: 8080},
				Frontends: []model.Frontend{{Kind: model.ClusterIP, Addr: netip.MustParseAddr("172.30.162.172"), Port: 8080}},
			}})
		}, []string{"OSH-3.1-SAMENODE", "OSH-3.2-SENDER", "OSH-3.3-EXTERNAL", "OSH-3.4-INBOUND", "OSH-3.6-GLOBALVNID", "OSH-3.7-SERVICE"}},
		{"node2", func(m *MultitenantManager) { m.pod("dev", 50, "10.128.2.128") }, []string{"OSH-3.2-RECEIVER", "OSH-3.6-GLOBALVNID"}},
	} {
		t.Run(test.node, func(t *testing.T) {
			flows := recordedFlows{}
			m := multitenantManager(test.node, flows)
			m.OnUpdate(model.TenantUpdate{Namespace: "dev", Number: 0xbe3127})
			m.OnUpdate(model.TenantUpdate{Namespace: "other", Number: 0xfa9a3})
			test.objects(m)
			m.CompleteDeferredWork()
			b := ovstest.NewBridge(t)
			b.Install(multitenant.Owner, multitenant.Version, flows.all())
			ovstest.Comparison{Extra: func(*flowtext.Flow) string { return "ovsfwd/multitenant: TestReference has the reason" }}.Check(t, b.Installed(), ovstest.Reference(t, test.scenarios...))
		})
	}
}

type recordedFlows map[string][]openflow.Flow

func (r recordedFlows) SetFlows(key string, render func() []openflow.Flow) { r[key] = render() }
func (r recordedFlows) RemoveFlows(key string)                             { delete(r, key) }

func (r recordedFlows) all() (all []openflow.Flow) {
	for _, flows := range r {
		all = append(all, flows...)
	}
	return all
}

// TestMultitenantCloses: a pod that an object would limit, or whose namespace has no number, has no flows, and neither do the Services of such a
// namespace; the number of a namespace that changes is another one in all of them.
func TestMultitenantCloses(t *testing.T) {
	flows := recordedFlows{}
	m := multitenantManager("node1", flows)
	id := m.pod("dev", 5, "10.131.0.5")
	m.OnUpdate(model.ServicePortUpdate{Port: &model.ServicePort{
		ID:        model.ServicePortID{Namespace: "dev", Name: "web", Protocol: model.TCP, Port: 80},
		Frontends: []model.Frontend{{Kind: model.ClusterIP, Addr: netip.MustParseAddr("172.30.0.1"), Port: 80}, {Kind: model.NodePort, Addr: netip.IPv4Unspecified(), Port: 30080}},
	}})
	check := func(what, number string, refused ...string) {
		t.Helper()
		m.CompleteDeferredWork()
		text := fmt.Sprint(flows["pod "+id.String()])
		if open := strings.Contains(text, "10.131.0.5"); open != (number != "") || open && !strings.Contains(text, number) {
			t.Errorf("%s: flows of the pod %s, want those of number %q", what, text, number)
		}
		var names []string
		for _, p := range m.Refused() {
			names = append(names, p.Object.String())
		}
		if why := m.Closed()[id]; (why == "") != (number != "") && m.endpoints[id] != nil {
			t.Errorf("%s: closed because %q", what, why)
		}
		if !slices.Equal(names, refused) {
			t.Errorf("%s: refused %q, want %q", what, names, refused)
		}
	}
	check("no number", "")
	if service := flows["service dev/web 172.30.0.1"]; len(service) != 0 {
		t.Errorf("a Service without a number: %s", service)
	}
	m.OnUpdate(model.TenantUpdate{Namespace: "dev", Number: 7})
	check("a number", "0x7")
	if service := fmt.Sprint(flows["service dev/web 172.30.0.1"]); !strings.Contains(service, "172.30.0.1") || strings.Contains(service, "30080") {
		t.Errorf("a Service: %s", service)
	}
	if len(flows["number 7"]) != 1 {
		t.Errorf("table 80: %s", flows["number 7"])
	}
	m.OnUpdate(model.TenantUpdate{Namespace: "dev", Number: 8})
	check("another number", "0x8")
	if len(flows["number 7"]) != 0 || len(flows["number 8"]) != 1 {
		t.Errorf("table 80: %s, %s", flows["number 7"], flows["number 8"])
	}
	policy := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "dev", Name: "deny"}
	m.OnUpdate(model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id, Egress: model.Applied{NetworkPolicies: []model.PolicyID{policy}}}})
	check("a NetworkPolicy", "", "networkpolicy/dev/deny")
	m.OnUpdate(model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id}})
	m.OnUpdate(model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id, Egress: model.Applied{NetworkPolicies: []model.PolicyID{policy, {Tier: model.TierNetworkPolicy, Namespace: "dev", Name: "too"}}}}})
	check("two NetworkPolicies", "", "networkpolicy/dev/deny", "networkpolicy/dev/too")
	m.OnUpdate(model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id}})
	check("no policy", "0x8")
	m.OnUpdate(model.EgressesUpdate{Egresses: []model.EgressAddress{{Object: model.ObjectRef{Kind: "Egress", Name: "e"}, Pods: []netip.Addr{netip.MustParseAddr("10.131.0.5")}}}})
	check("an Egress", "", "egress/e")
	m.OnUpdate(model.EgressesUpdate{})
	check("no Egress", "0x8")
	m.OnUpdate(model.AttachmentUpdate{Attachment: &model.Attachment{Pod: model.PodID{Namespace: "dev", Name: "later"}, OFPort: 5}})
	check("a port that another pod has now", "")
	m.OnUpdate(model.AttachmentRemove{Pod: model.PodID{Namespace: "dev", Name: "later"}})
	check("no pod has the port now", "")
	id = m.pod("dev", 5, "10.131.0.5")
	check("it has the port again", "0x8")
	m.OnUpdate(model.EndpointRemove{ID: id})
	check("a pod that the datastore does not know", "")
}

// TestMultitenantNodes: a node outside the prefix of all pods has no flows and is named; this node is not ready then.
func TestMultitenantNodes(t *testing.T) {
	flows := recordedFlows{}
	m := multitenantManager("node1", flows)
	m.CompleteDeferredWork()
	if len(flows["base"]) == 0 || len(flows["peer node2"]) == 0 || len(m.Unready())+len(m.Problems()) > 0 {
		t.Fatalf("%s, %v, %v", flows, m.Unready(), m.Problems())
	}
	move := func(name string) {
		m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: name, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/23")}}})
		m.CompleteDeferredWork()
	}
	if move("node2"); len(flows["peer node2"]) > 0 || !strings.Contains(fmt.Sprint(flows["ends node2"]), "192.0.2.1") || len(m.Problems()) != 1 || len(m.Unready()) > 0 {
		t.Errorf("%s, %v, %v", flows["peer node2"], m.Problems(), m.Unready())
	}
	m.OnUpdate(model.ServiceCIDRsUpdate{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.130.0.0/16"), netip.MustParsePrefix("10.97.0.0/16")}})
	m.CompleteDeferredWork()
	if base := fmt.Sprint(flows["base"]); len(m.Problems()) != 2 || strings.Contains(base, "10.130.0.0/16") || !strings.Contains(base, "10.97.0.0/16") {
		t.Errorf("a prefix of Services among those of pods: %v, %s", m.Problems(), base)
	}
	if move("node1"); len(flows["base"]) > 0 || len(m.Unready()) != 1 {
		t.Errorf("%s, %v", flows["base"], m.Unready())
	}
}
