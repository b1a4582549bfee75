package manifests

import (
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
)

const antreaYAML = `apiVersion: crd.antrea.io/v1beta1
kind: Tier
metadata: {name: house}
spec: {priority: 20}
---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterGroup
metadata: {name: web}
spec: {podSelector: {matchLabels: {app: web}}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Group
metadata: {namespace: shop, name: web}
spec: {podSelector: {matchLabels: {app: web}}}
---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: p}
spec:
  tier: house
  priority: 5.5
  appliedTo: [{group: web}]
  egress: [{action: Drop, to: [{ipBlock: {cidr: 192.0.2.0/24}}]}]
---
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {namespace: shop, name: p}
spec:
  priority: 5
  appliedTo: [{podSelector: {}}]
  ingress: [{action: Allow}]
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: e}
spec: {egressIP: 192.0.2.1, appliedTo: {podSelector: {}}}
---
apiVersion: felixlike.io/v1alpha1
kind: Egress
metadata: {name: e}
spec: {egressIP: 192.0.2.2, node: node1, appliedTo: {podSelector: {}}}
`

// TestAntrea: files may have the kinds of Antrea's API, beside kinds of the same names. An error leaves the
// last good version in force; without one, what is not understood fails closed.
func TestAntrea(t *testing.T) {
	const kubernetes = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: p}\nspec: {podSelector: {}}\n"
	events, problems := Parse("a.yaml", []byte(antreaYAML+"---\n"+kubernetes+"---\n"+clusterPolicyYAML))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	objects := antrea.Objects{}
	others := 0
	for _, e := range events {
		switch e := e.(type) {
		case datastore.AntreaSet:
			objects.Put(e.Object)
		case datastore.NetworkPolicySet, datastore.ClusterNetworkPolicySet:
			others++
		}
	}
	if len(objects.All()) != 7 || others != 2 {
		t.Fatalf("%d objects of Antrea's API, %d others", len(objects.All()), others)
	}
	if p := objects.ClusterPolicies[0]; p.Spec.Priority != 5.5 || p.Spec.Tier != "house" || p.Spec.Egress[0].To[0].IPBlock.CIDR != "192.0.2.0/24" {
		t.Errorf("policy: %+v", p)
	}

	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", antreaYAML)
	h := start(t, dir, time.Hour)
	h.sync()
	h.wantProblems()
	writeFile(t, dir, "a.yaml", strings.Replace(antreaYAML, "cidr", "cdir", 1))
	h.sync()
	h.wantProblems("a.yaml: clusternetworkpolicy.crd.antrea.io/p: spec.egress[0].to[0].ipBlock.cdir: unknown field; the last good version stays in force")
}

// TestAntreaErrors: an object with an error, of which no good version is known, fails closed.
func TestAntreaErrors(t *testing.T) {
	for _, test := range []struct{ name, old, new, problem string }{
		{"rule", "cidr", "cdir", "clusternetworkpolicy.crd.antrea.io/p: spec.egress[0].to[0].ipBlock.cdir: unknown field; fails closed"},
		{"direction", "egress", "egres", "clusternetworkpolicy.crd.antrea.io/p: spec.egres: unknown field; fails closed"},
		{"group", "podSelector: {matchLabels", "pods: {matchLabels", "clustergroup.crd.antrea.io/web: spec.pods: unknown field; fails closed"},
		{"node", "node: node1", "nod: node1", "egress.felixlike.io/e: spec.nod: unknown field; fails closed"},
		{"version", "v1beta1\nkind: NetworkPolicy", "v1alpha1\nkind: NetworkPolicy", `networkpolicy.crd.antrea.io/shop/p: apiVersion: "crd.antrea.io/v1alpha1": must be crd.antrea.io/v1beta1; fails closed`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "a.yaml", strings.Replace(antreaYAML, test.old, test.new, 1))
			h := start(t, dir, time.Hour)
			h.sync()
			h.wantProblems("a.yaml: " + test.problem)
		})
	}
}
