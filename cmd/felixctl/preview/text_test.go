package preview

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/model"
)

const shop = `
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDR: 10.0.1.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.0.1}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, spec: {podCIDR: 10.0.2.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: db, labels: {app: db}}, spec: {nodeName: n1, containers: [{name: c, ports: [{name: sql, containerPort: 5432}]}]}, status: {podIP: 10.0.1.2}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web-1, labels: {app: web}}, spec: {nodeName: n1}, status: {podIP: 10.0.1.3}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web-2, labels: {app: web}}, spec: {nodeName: n2}, status: {podIP: 10.0.2.3}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: host}, spec: {nodeName: n2, hostNetwork: true}, status: {podIP: 192.168.0.2}}
`

const dbPolicy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: sql}]
  - from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}}]
    ports: [{port: 5432, endPort: 5440}, {port: 53, protocol: UDP}]
`

func TestText(t *testing.T) {
	o, c := objects(t, shop), Change{Set: objects(t, dbPolicy).Policies}
	p, err := Of(t.Context(), o, c)
	if err != nil {
		t.Fatal(err)
	}
	web, db := netip.MustParseAddr("10.0.1.3"), netip.MustParseAddr("10.0.1.2")
	established := []control.Connection{
		{Protocol: model.TCP, Source: web, SourcePort: 40000, Destination: db, Port: 5432},
		{Protocol: model.TCP, Source: web, SourcePort: 40001, Destination: db, Port: 22},
		{Protocol: model.TCP, Source: netip.MustParseAddr("192.168.0.1"), SourcePort: 40001, Destination: db, Port: 22},
	}
	if err := p.Connections(o, c, &control.Model{}, established); err != nil {
		t.Fatal(err)
	}
	isolated := "ingress is isolated by networkpolicy/shop/db, and no rule allows it"
	golden(t, p, false, `networkpolicy/shop/db: created; ingress of 1 pod

Packets with another verdict
FROM                                          TO       PORTS                     NOW      THEN    BECAUSE
192.0.2.0/24 except 192.0.2.128/25            shop/db  all but tcp/5432-5440 udp/53  allowed  denied  ISOLATED
192.0.2.128/25, anyone else outside, node n2  shop/db  all                       allowed  denied  ISOLATED
shop/web-1, shop/web-2                        shop/db  all but tcp/5432          allowed  denied  ISOLATED

Established connections of n1
the new policies deny 1 connection; an established connection continues until it ends:
FROM        TO       CONNECTION                         BECAUSE
shop/web-1  shop/db  tcp 10.0.1.3:40001 -> 10.0.1.2:22  ISOLATED
`, isolated)
	golden(t, p, true, `networkpolicy/shop/db
  It would be created.
  It applies to ingress of 1 pod: shop/db.
  These pods are isolated: a packet passes if a rule of any NetworkPolicy of the pod allows it, else it is dropped. Answers always pass, and so do packets from a pod's own node.

192.0.2.0/24 except 192.0.2.128/25 could no longer reach shop/db by everything but tcp/5432-5440, udp/53: ISOLATED.
192.0.2.128/25, anyone else outside, node n2 could no longer reach shop/db by any protocol and port: ISOLATED.
shop/web-1, shop/web-2 could no longer reach shop/db by everything but tcp/5432: ISOLATED.

Established connections of n1
the new policies deny 1 connection; an established connection continues until it ends:
FROM        TO       CONNECTION                         BECAUSE
shop/web-1  shop/db  tcp 10.0.1.3:40001 -> 10.0.1.2:22  ISOLATED
`, isolated)
}

// TestDelete reopens the ends that a policy closed, and fails for a missing policy.
func TestDelete(t *testing.T) {
	o := objects(t, shop+"---"+dbPolicy)
	p, err := Of(t.Context(), o, Change{Delete: []model.ObjectRef{{Kind: networkPolicy, Namespace: "shop", Name: "db"}}})
	if err != nil || len(p.Verdicts) == 0 || p.Policies[0].What != Deleted {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, d := range p.Verdicts {
		if d.Becomes != Allowed || d.Because != "no policy isolates either end" {
			t.Errorf("%+v", d)
		}
	}
	if _, err := Of(t.Context(), o, Change{Delete: []model.ObjectRef{{Kind: networkPolicy, Namespace: "shop", Name: "dbs"}}}); err == nil || !strings.Contains(err.Error(), "shop/dbs: does not exist, so it cannot be deleted") {
		t.Errorf("error %v", err)
	}
	same, err := Of(t.Context(), o, Change{Set: objects(t, dbPolicy).Policies})
	if err != nil || same.Changes() || same.Policies[0].What != Same {
		t.Errorf("the same policy again: %+v, %v", same, err)
	}
}

// TestStaged: to stage a policy opens what it closed, and to enforce it closes that, although the rules are the same.
func TestStaged(t *testing.T) {
	enforced, staged := objects(t, dbPolicy).Policies, objects(t, dbPolicy).Policies
	staged[0].Annotations = map[string]string{model.EnforceAnnotation: "no"}
	for _, c := range []struct {
		before, after []*networkingv1.NetworkPolicy
		becomes       string
	}{{enforced, staged, Allowed}, {staged, enforced, Denied}} {
		o := objects(t, shop)
		o.Policies = c.before
		p, err := Of(t.Context(), o, Change{Set: c.after})
		if err != nil || len(p.Verdicts) == 0 || p.Policies[0].What != Changed {
			t.Fatalf("%+v, %v", p, err)
		}
		for _, d := range p.Verdicts {
			if d.Becomes != c.becomes {
				t.Errorf("%+v", d)
			}
		}
	}
}

// TestProblems reports effects that people may not expect.
func TestProblems(t *testing.T) {
	all := objects(t, strings.ReplaceAll(dbPolicy, "{matchLabels: {app: db}}", "{}")).Policies
	none := objects(t, strings.ReplaceAll(strings.ReplaceAll(dbPolicy, "app: db", "app: nobody"), "shop", "none")).Policies
	p, err := Of(t.Context(), objects(t, shop), Change{Set: slices.Concat(all, none)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range p.Policies {
		got = append(got, c.Problems...)
	}
	want := []string{
		"it selects no existing pod", `there is no namespace "none"`,
		"it selects shop/host, which is in its host's network, so that no policy applies to it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func golden(t *testing.T, p *Preview, explained bool, want, isolated string) {
	t.Helper()
	var out bytes.Buffer
	if err := Print(&out, p, explained); err != nil {
		t.Fatal(err)
	}
	words := func(s string) []string { return strings.Fields(strings.ReplaceAll(s, isolated, "ISOLATED")) }
	if diff := cmp.Diff(words(want), words(out.String())); diff != "" {
		t.Errorf("%s\n%s", diff, out.String())
	}
}

func objects(t *testing.T, text string) control.Objects {
	t.Helper()
	events, problems := manifests.Parse("objects.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	o := control.Objects{Node: "n1"}
	for _, e := range events {
		switch e := e.(type) {
		case datastore.NodeSet:
			o.Nodes = append(o.Nodes, e.Node)
		case datastore.NamespaceSet:
			o.Namespaces = append(o.Namespaces, e.Namespace)
		case datastore.PodSet:
			o.Pods = append(o.Pods, e.Pod)
		case datastore.NetworkPolicySet:
			o.Policies = append(o.Policies, e.Policy)
		case datastore.ClusterNetworkPolicySet:
			o.ClusterPolicies = append(o.ClusterPolicies, e.Policy)
		case datastore.AntreaSet:
			o.Antrea.Put(e.Object)
		}
	}
	slices.SortFunc(o.Policies, func(a, b *networkingv1.NetworkPolicy) int { return strings.Compare(a.Name, b.Name) })
	return o
}

// TestStillDenied: a new policy lets web into the database, and web's own egress does not let it out. That is said, and it is no change of a verdict.
func TestStillDenied(t *testing.T) {
	const egress = `
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress],
  egress: [{ports: [{port: 53, protocol: UDP}]}]}}
`
	o, c := objects(t, shop+"---"+egress+"---"+dbPolicy), Change{}
	o.Policies, c.Set = o.Policies[:1], o.Policies[1:]
	if o.Policies[0].Name != "web" {
		o.Policies, c.Set = c.Set, o.Policies
	}
	p, err := Of(t.Context(), o, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.StillDenied) != 1 || !slices.Equal(p.StillDenied[0].Ports, []string{"tcp/5432"}) || !strings.Contains(p.StillDenied[0].Because, "egress is isolated by networkpolicy/shop/web") {
		t.Errorf("still denied: %+v", p.StillDenied)
	}
	for _, d := range p.Verdicts {
		if slices.Contains(d.From, "shop/web-1") && d.Becomes == Allowed {
			t.Errorf("a packet of web becomes allowed: %+v", d)
		}
	}
	var text bytes.Buffer
	if err := Print(&text, p, false); err != nil || !strings.Contains(text.String(), "Still denied, though the new rules allow it at one end\nFROM") {
		t.Errorf("%v\n%s", err, &text)
	}
	// The same policy once more allows nothing newly.
	o.Policies = append(o.Policies, c.Set...)
	if p, err = Of(t.Context(), o, c); err != nil || len(p.StillDenied) > 0 {
		t.Errorf("unchanged: %v, %+v", err, p.StillDenied)
	}
}
