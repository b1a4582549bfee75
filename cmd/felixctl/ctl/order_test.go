package ctl

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/model"
)

const orderYAML = `
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDR: 10.0.1.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.0.1}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: db, labels: {app: db}}, spec: {nodeName: n1, containers: [{name: c, ports: [{name: sql, containerPort: 5432}]}]}, status: {podIP: 10.0.1.2}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {app: web}}, spec: {nodeName: n1}, status: {podIP: 10.0.1.3}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: sql}, {port: 53, protocol: UDP}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {podSelector: {matchLabels: {app: db}}}
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: later}
spec:
  {tier: Admin, priority: 20, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: zfirst}
spec:
  tier: Admin
  priority: 3
  subject: {namespaces: {}}
  ingress: [{action: Pass, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 1, end: 99}}}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: base}
spec:
  tier: Baseline
  priority: 1
  subject: {namespaces: {}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
  egress:
  - {action: Deny, to: [{networks: [192.0.2.0/24]}]}
  - {action: Accept, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}], protocols: [{destinationNamedPort: sql}]}
`

func orderModel(t *testing.T, more ...string) *control.Model {
	t.Helper()
	events, problems := manifests.Parse("order.yaml", []byte(orderYAML+strings.Join(more, "")))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	like := &control.Model{}
	like.Settings.Isolation = slices.ContainsFunc(more, func(text string) bool { return strings.Contains(text, "EgressNetworkPolicy") })
	m, problems, err := wanted.FromEvents(events, "n1", like)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	return m
}

// TestOrder: rules are listed as they are evaluated, and the baseline tier only where no
// NetworkPolicy isolates the pod.
func TestOrder(t *testing.T) {
	o, err := orderOf(orderModel(t), model.PodID{Namespace: "shop", Name: "db"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printOrder(&out, o); err != nil {
		t.Fatal(err)
	}
	want := `Ingress of shop/db (n1)
TIER           PRIORITY  POLICY       RULE        ACTION  PEERS                           PORTS
admin          3         clusternetworkpolicy/zfirst       ingress[0]  pass    all pods in all namespaces      tcp/1-99
admin          20        clusternetworkpolicy/later        ingress[0]  deny    all pods in all namespaces      any
networkpolicy  -         networkpolicy/shop/closed  -           -       -                               -
networkpolicy  -         networkpolicy/shop/db      ingress[0]  allow   pods app=web in namespace shop  udp/53, tcp/5432 (named)
everything else: deny: a NetworkPolicy isolates the pod

Egress of shop/db (n1)
TIER      PRIORITY  POLICY  RULE       ACTION  PEERS         PORTS
baseline  1         clusternetworkpolicy/base    egress[0]  deny    192.0.2.0/24  any
baseline  1         clusternetworkpolicy/base    egress[1]  allow   pods app=db in all namespaces     tcp/5432 (named)
everything else: allow
`
	if diff := cmp.Diff(strings.Fields(want), strings.Fields(out.String())); diff != "" {
		t.Errorf("%s\n%s", diff, out.String())
	}
	if _, err := orderOf(orderModel(t), model.PodID{Namespace: "shop", Name: "gone"}); err == nil || !strings.Contains(err.Error(), "shop/gone") {
		t.Errorf("error %v", err)
	}
}

// TestOrderOfAntreasTiers: policies of Antrea's API show the tier by which they are evaluated, and the names of
// their rules.
func TestOrderOfAntreasTiers(t *testing.T) {
	policy := func(name, tier string) string {
		return "---\n{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: " + name + "}, spec: {tier: " + tier +
			", priority: 5.5, appliedTo: [{podSelector: {matchLabels: {app: web}}}], egress: [{action: Reject, name: no-out}]}}\n"
	}
	const tier = "---\n{apiVersion: crd.antrea.io/v1beta1, kind: Tier, metadata: {name: own}, spec: {priority: 7}}\n"
	o, err := orderOf(orderModel(t, tier, policy("a", "application"), policy("b", "own")), model.PodID{Namespace: "shop", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printOrder(&out, o); err != nil {
		t.Fatal(err)
	}
	want := "tier (7) 5.5 clusternetworkpolicy.crd.antrea.io/b egress[0] (no-out) reject any any application (250) 5.5 clusternetworkpolicy.crd.antrea.io/a egress[0] (no-out) reject any any baseline 1 clusternetworkpolicy/base egress[0]"
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
	if r := o.Egress.Rules[0]; r.Rule != "egress[0]" || r.RuleName != "no-out" {
		t.Errorf("rule %+v", r)
	}
}

// TestOrderOfEgressNetworkPolicy: it is before all tiers and has no priority. Its rules that deny have what no earlier one has.
func TestOrderOfEgressNetworkPolicy(t *testing.T) {
	const object = `---
apiVersion: network.openshift.io/v1
kind: EgressNetworkPolicy
metadata: {namespace: shop, name: p}
spec: {egress: [{type: Allow, to: {cidrSelector: 128.0.0.0/1}}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}}]}
`
	o, err := orderOf(orderModel(t, object), model.PodID{Namespace: "shop", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printOrder(&out, o); err != nil {
		t.Fatal(err)
	}
	want := "admin - egressnetworkpolicy.network.openshift.io/shop/p cluster (pods of the cluster) next 10.0.1.0/24 any admin - egressnetworkpolicy.network.openshift.io/shop/p egress[1] (0.0.0.0/0) deny 0.0.0.0/1 any baseline 1 clusternetworkpolicy/base egress[0]"
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// TestOrderOfNode: the order of the node itself has its own policies only, and says if they are not in force.
func TestOrderOfNode(t *testing.T) {
	id := func(name string, tier model.Tier) model.PolicyID {
		return model.PolicyID{Tier: tier, API: model.AntreaCluster, Name: name}
	}
	rules := []model.Rule{{Name: "ingress[0]", Title: "monitor", Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.TCP, First: 9100, Last: 9100}}}}
	h := &model.HostPolicies{
		Ingress:  model.Applied{Admin: []model.PolicyID{id("hosts", model.TierAdmin)}, Baseline: []model.PolicyID{id("base", model.TierBaseline)}},
		Policies: []*model.Policy{{ID: id("hosts", model.TierAdmin), Ingress: rules}, {ID: id("base", model.TierBaseline), Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Deny, AnyPeer: true, AnyPort: true}}}},
	}
	m := &control.Model{Node: "n1", HostPolicies: h}
	o, err := orderOfNode(m, "n1")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printOrder(&out, o); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	first, last := strings.Index(text, "ingress[0] (monitor)"), strings.Index(text, "clusternetworkpolicy.crd.antrea.io/base")
	if first < 0 || last < first || !strings.Contains(text, "Ingress of the node itself (n1)") || strings.Contains(text, "not in force") {
		t.Errorf("order:\n%s", text)
	}
	m.HostState.Withdrawn = h.Fingerprint()
	if o, _ := orderOfNode(m, "n1"); o.NotInForce != control.HostsWithdrawn {
		t.Errorf("withdrawn: %+v", o)
	}
	for _, name := range []string{"n2", "n1"} {
		if _, err := orderOfNode(&control.Model{Node: "n1"}, name); err == nil {
			t.Errorf("no error for %s without policies", name)
		}
	}
}
