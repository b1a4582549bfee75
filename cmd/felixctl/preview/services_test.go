package preview

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

const beforeDNAT = `
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: ports, annotations: {felixlike.io/pre-dnat: "true"}}, spec: {
  priority: 1, appliedTo: [{nodeSelector: {matchLabels: {role: worker}}}], ingress: [
    {action: Allow, from: [{ipBlock: {cidr: 192.0.2.0/24}}]},
    {action: Allow, from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 30080}]},
    {action: Drop, ports: [{port: 22}, {port: 80}, {port: 30000, endPort: 32767}]}]}}
---
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: at-the-node}, spec: {priority: 2, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop, ports: [{port: 30081}]}]}}
`

const webService = `
metadata: {namespace: shop, name: web}
spec:
  type: LoadBalancer
  externalIPs: [192.0.2.200, "fd00::9"]
  ports: [{port: 80, nodePort: 30080}, {port: 53, protocol: UDP, nodePort: 30053}, {port: 22, nodePort: 29000}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.1}, {ip: 198.51.100.2, ipMode: Proxy}, {hostname: lb.example}]}}
`

func serviceOf(t *testing.T, text string) control.Service {
	t.Helper()
	s := &corev1.Service{}
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return ServiceOf(s)
}

func previewOfNodes(t *testing.T, o control.Objects, c Change) *Preview {
	t.Helper()
	m := &control.Model{Node: "n1", Failsafe: &model.Failsafe{In: []model.FailsafePort{{PortRange: model.PortRange{Protocol: model.TCP, First: 22, Last: 22}}}}}
	p, err := Of(t.Context(), o, c)
	if err == nil {
		err = p.Nodes(t.Context(), o, c, m, func(context.Context) ([]control.Socket, error) { return nil, nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func serviceLines(p *Preview) string {
	var all []string
	for _, s := range p.Services {
		slices.Sort(s.From)
		all = append(all, fmt.Sprintf("%s %s at %s, from %s: %s", s.Service, s.text(), strings.Join(s.Nodes, ","), strings.Join(s.From, ","), s.Becomes))
	}
	return strings.Join(all, "\n")
}

// TestServiceFamilies: a preview names a Service for the families that it has, and says which one a change concerns if the other keeps its verdict. No proxy serves an
// ExternalName. An externalIP that is an address of a node is one of that node alone, and pods meet its policies there.
func TestServiceFamilies(t *testing.T) {
	dual := strings.NewReplacer("address: 192.168.0.1}", `address: 192.168.0.1}, {type: InternalIP, address: "fd60::1"}`, "address: 192.168.0.2}", `address: 192.168.0.2}, {type: InternalIP, address: "fd60::2"}`).Replace(threeHosts)
	const policy = `{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: p, annotations: {felixlike.io/pre-dnat: "true"}}, spec: {
  priority: 1, appliedTo: [{nodeSelector: {matchLabels: {role: worker}}}], ingress: [{action: Drop, %sports: [{port: 80}, {port: 30080}]}]}}`
	const onlyIPv6 = `from: [{ipBlock: {cidr: "::/0"}}], `
	for name, c := range map[string]struct{ peer, spec, want string }{
		"IPv4 alone": {onlyIPv6, `{type: NodePort, ipFamilies: [IPv4], externalIPs: ["fd00::9"], ports: [{port: 80, nodePort: 30080}]}`, ""},
		"IPv6 alone": {
			onlyIPv6, `{type: NodePort, ipFamilies: [IPv6], ports: [{port: 80, nodePort: 30080}]}`,
			"shop/web nodePort tcp/30080 at node n1,node n2, from anyone outside,node n2: denied",
		},
		"both, one is closed": {
			onlyIPv6, `{type: NodePort, ipFamilies: [IPv4, IPv6], ports: [{port: 80, nodePort: 30080}]}`,
			"shop/web nodePort tcp/30080 (IPv6) at node n1,node n2, from anyone outside,node n2: denied",
		},
		"ExternalName": {"", `{type: ExternalName, externalName: a.example, externalIPs: [192.0.2.200], ports: [{port: 80}]}`, ""},
		"a node's address": {
			"", `{type: ClusterIP, ipFamilies: [IPv4], externalIPs: [192.168.0.2], ports: [{port: 80}]}`,
			"shop/web externalIP 192.168.0.2 tcp/80 at node n2, from anyone outside,node n1,node n3,shop/web: denied",
		},
	} {
		service := serviceOf(t, "metadata: {namespace: shop, name: web}\nspec: "+c.spec)
		p := previewOfNodes(t, objects(t, dual), Change{SetAntrea: objects(t, fmt.Sprintf(policy, c.peer)).Antrea.All(), Services: []control.Service{service}})
		if got := serviceLines(p); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestServices: a preview of policies before DNAT names the addresses of Services that they close, at which nodes and for whom, without those that policies at
// INPUT would judge, which packets to endpoints do not meet. Pods and nodes reach addresses that are no node's. Without Services it says that it does not know.
func TestServices(t *testing.T) {
	o, policies := objects(t, threeHosts), objects(t, beforeDNAT).Antrea
	of := func(o control.Objects, c Change) *Preview {
		t.Helper()
		return previewOfNodes(t, o, c)
	}
	lines := serviceLines
	services := []control.Service{serviceOf(t, webService)}
	const want = `shop/web nodePort tcp/30080 at node n1,node n2, from anyone else outside,node n2,node n3: denied
shop/web externalIP 192.0.2.200 tcp/80 at node n1,node n2, from anyone else outside: denied
shop/web loadBalancer 198.51.100.1 tcp/80 at node n1,node n2, from anyone else outside: denied
shop/web externalIP 192.0.2.200 tcp/22 at node n1,node n2, from anyone else outside: kept open by the failsafe ports
shop/web loadBalancer 198.51.100.1 tcp/22 at node n1,node n2, from anyone else outside: kept open by the failsafe ports`
	p := of(o, Change{SetAntrea: policies.All(), Services: services})
	if got := lines(p); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var text strings.Builder
	if err := Print(&text, p, false); err != nil || !p.Changes() || !strings.Contains(text.String(), "externalIP 192.0.2.200 tcp/80") {
		t.Errorf("%v\n%s", err, text.String())
	}
	// Without a change there is none. Without the policies, it is the other way round.
	now := o
	now.Antrea = policies
	if p := of(now, Change{SetAntrea: policies.All(), Services: services}); len(p.Services) > 0 || p.Changes() {
		t.Errorf("unchanged: %s", lines(p))
	}
	p = of(now, Change{Delete: []model.ObjectRef{antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "ports"}.Ref(), antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "at-the-node"}.Ref()}, Services: services})
	if got := lines(p); !strings.HasPrefix(got, "shop/web nodePort tcp/30080 at node n1,node n2, from anyone else outside,node n2,node n3: allowed\n") {
		t.Errorf("deleted:\n%s", got)
	}
	// Services are not known.
	text.Reset()
	p = of(o, Change{SetAntrea: policies.All()})
	if err := Print(&text, p, false); err != nil || !p.Changes() || !strings.Contains(text.String(), "not judged: no Services are known") || strings.Contains(text.String(), "every packet keeps its verdict") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if p := of(now, Change{Set: objects(t, dbPolicy).Policies}); p.NoServices {
		t.Error("the policies before DNAT stay as they are")
	}
	if p := of(o, Change{SetAntrea: objects(t, workers).Antrea.All()}); p.NoServices {
		t.Error("no policy is before DNAT")
	}
}
