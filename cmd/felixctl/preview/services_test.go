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

// TestServices: a preview of policies before DNAT names the addresses of Services that they close, at which nodes and for whom, without those that policies at
// INPUT would judge, which packets to endpoints do not meet. Pods and nodes reach addresses that are no node's. Without Services it says that it does not know.
func TestServices(t *testing.T) {
	o, policies := objects(t, threeHosts), objects(t, beforeDNAT).Antrea
	service := &corev1.Service{}
	if err := yaml.UnmarshalStrict([]byte(webService), service); err != nil {
		t.Fatal(err)
	}
	m := &control.Model{Node: "n1", Failsafe: &model.Failsafe{In: []model.PortRange{{Protocol: model.TCP, First: 22, Last: 22}}}}
	of := func(o control.Objects, c Change) *Preview {
		t.Helper()
		p, err := Of(t.Context(), o, c)
		if err == nil {
			err = p.Nodes(t.Context(), o, c, m, func(context.Context) ([]control.Socket, error) { return nil, nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	lines := func(p *Preview) string {
		var all []string
		for _, s := range p.Services {
			slices.Sort(s.From)
			all = append(all, fmt.Sprintf("%s %s at %s, from %s: %s", s.Service, s.Address, strings.Join(s.Nodes, ","), strings.Join(s.From, ","), s.Becomes))
		}
		return strings.Join(all, "\n")
	}
	services := []control.Service{ServiceOf(service)}
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
	p = of(now, Change{DeleteAntrea: []antrea.ID{{Kind: antrea.KindClusterNetworkPolicy, Name: "ports"}, {Kind: antrea.KindClusterNetworkPolicy, Name: "at-the-node"}}, Services: services})
	if got := lines(p); !strings.HasPrefix(got, "shop/web nodePort tcp/30080 at node n1,node n2, from anyone else outside,node n2,node n3: allowed\n") {
		t.Errorf("deleted:\n%s", got)
	}
	// Services are not known.
	text.Reset()
	p = of(o, Change{SetAntrea: policies.All()})
	if err := Print(&text, p, false); err != nil || !strings.Contains(text.String(), "not judged: no Services are known") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if p := of(o, Change{SetAntrea: objects(t, workers).Antrea.All()}); p.NoServices {
		t.Error("no policy is before DNAT")
	}
}
