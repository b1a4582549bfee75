package policytest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/report"
)

// db lets peers reach shop/db, and nobody else.
func db(peer string) string {
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: db}\nspec:\n  podSelector: {matchLabels: {app: db}}\n  policyTypes: [Ingress]\n  ingress: [{from: [" + peer + "]}]\n"
}

// all is a policy of Antrea's API that lets peers reach all pods, and nobody else.
func all(peer string) string {
	return "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: all}\nspec:\n  priority: 1\n  appliedTo: [{namespaceSelector: {}}]\n" +
		"  ingress:\n  - {action: Allow, from: [" + peer + "]}\n  - {action: Drop, from: [{namespaceSelector: {}}]}\n"
}

// ofNodes is a policy for nodes with a rule and a Drop of all others.
func ofNodes(rule string) string {
	return "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: nodes}\nspec:\n  priority: 1\n  appliedTo: [{nodeSelector: {}}]\n  ingress: [" + rule + ", {action: Drop}]\n"
}

// in returns a test of expectations in a cluster.
func in(cluster string, expect ...string) string {
	return "apiVersion: felixlike.io/v1alpha1\nkind: PolicyTest\nmetadata: {name: shop}\nspec:\n  cluster: " + cluster + "\n  expect:\n  - " + strings.Join(expect, "\n  - ") + "\n"
}

// netNamespace gives a namespace a number.
func netNamespace(name, number string) string {
	return "apiVersion: network.openshift.io/v1\nkind: NetNamespace\nmetadata: {name: " + name + "}\nnetname: " + name + "\nnetid: " + number + "\n---\n"
}

func egressPolicy(kind string) string {
	return "apiVersion: network.openshift.io/v1\nkind: EgressNetworkPolicy\nmetadata: {namespace: tea, name: p}\nspec: {egress: [{type: " + kind + ", to: {cidrSelector: 198.51.100.0/24}}]}\n"
}

const (
	shopDB   = "{pods: [{name: shop/db, labels: {app: db}}]}"
	noOthers = "no pod outside namespace:shop reaches shop/db"
)

// TestNoPacketIsLeftOut: expectations that hold only if some packets are forgotten do not hold.
func TestNoPacketIsLeftOut(t *testing.T) {
	hosts := func(more string) string {
		return "{nodes: [{name: n1, addresses: [192.0.2.1]}], pods: [{name: shop/db, labels: {app: db}}, {name: system/agent, node: n1, hostNetwork: true}" + more + "]}"
	}
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDR: 10.9.0.0/16, podCIDRs: [10.9.0.0/16]}\n"
	host := db("{ipBlock: {cidr: 192.0.2.0/24}}")
	for _, c := range []struct {
		what  string
		texts []string
		says  string // empty: it holds
	}{
		{"pods in a block", []string{db("{ipBlock: {cidr: 10.244.7.0/24}}"), in(shopDB, noOthers)}, "-> shop/db on all ports is allowed"},
		{"pods in a block that none can be in", []string{db("{ipBlock: {cidr: 10.245.7.0/24}}"), in(shopDB, noOthers)}, ""},
		{"pods in a block of IPv6", []string{db("{ipBlock: {cidr: 'fd00:10:244:7::/64'}}"), in("{families: [IPv4, IPv6], "+shopDB[1:], noOthers)}, "-> shop/db on all ports is allowed"},
		{"pods in a block of a node", []string{node, db("{ipBlock: {cidr: 10.9.7.0/24}}"), in(shopDB, noOthers)}, "-> shop/db on all ports is allowed"},
		{"a pod in its host's network", []string{host, in(hosts(""), noOthers)}, "node n1 -> shop/db on all ports is allowed"},
		{"a pod in its host's network as destination", []string{db("{podSelector: {}}"), in(hosts(""), "any pod in namespace:shop -> any pod in namespace:system: deny")}, "shop/db -> node n1 on all ports is allowed"},
		{"no other pod in its host's network", []string{host, in(hosts(""), "no pod outside namespace:system reaches shop/db", "no pod outside nodes reaches shop/db")}, ""},
		{"a node", []string{ofNodes("{action: Allow, from: [{ipBlock: {cidr: 198.51.100.0/24}}], ports: [{port: 9100}]}"), in(hosts(""), "198.51.100.0/24 -> node:n1 9100/tcp: allow", "everything else -> node:n1 9100/tcp: deny", "everything else -> node:n1 22/tcp: allow", "node:n1 -> everything: allow")}, ""},
		{"a block that reaches a node", []string{ofNodes("{action: Allow, from: [{ipBlock: {cidr: 198.51.100.0/24}}], ports: [{port: 9100}]}"), in(hosts(""), "outside -> node:n1 9100/tcp: deny")}, "198.51.100.0/24 -> node n1 tcp/9100 is allowed"},
		{"a pod that could reach a node", []string{ofNodes("{action: Allow, from: [{podSelector: {matchLabels: {app: probe}}}]}"), in(hosts(""), "any pod -> node:n1 9100/tcp: deny")}, "a pod of shop labelled app=probe -> node n1 tcp/9100 is allowed"},
		{"the failsafe ports of a node", []string{ofNodes("{action: Drop}"), in(hosts(""), "outside -> node:n1: deny")}, "-> node n1 tcp/22 tcp/2379-2380 tcp/6443 tcp/10250 is allowed: kept open by the failsafe ports"},
		{"another pod in its host's network", []string{host, in(hosts(", {name: dev/agent, node: n1, hostNetwork: true}"), "no pod outside namespace:system reaches shop/db")}, "node n1 -> shop/db on all ports is allowed"},
		{"greater labels", []string{db("{podSelector: {}}"), in(shopDB, "no pod in pods:level>3 reaches shop/db")}, "a pod of shop labelled level=4 -> shop/db"},
		{"lesser labels", []string{db("{podSelector: {}}"), in(shopDB, "no pod in pods:level<3 reaches shop/db")}, "a pod of shop labelled level=2 -> shop/db"},
		{"new values that are the same", []string{all("{namespaces: {sameLabels: [env]}}"), in(shopDB, "any pod -> any pod in namespaces:!old: deny")}, "is allowed: clusternetworkpolicy.crd.antrea.io/all ingress[0] allows it"},
		{"new values that differ", []string{all("{namespaces: {sameLabels: [env]}}"), in(shopDB, "any pod in namespaces:env -> any pod in namespaces:env: allow")}, "is denied: clusternetworkpolicy.crd.antrea.io/all ingress[1] denies it"},
		{"namespaces with the same labels", []string{all("{namespaces: {match: Self}}"), in(shopDB, "any pod outside namespace:shop -> any pod outside namespace:shop: allow")}, "is denied: clusternetworkpolicy.crd.antrea.io/all ingress[1] denies it"},
		{"no pods", []string{db("{podSelector: {}}"), in("{}", "everything else -> outside: deny")}, "it is about no packet"},
		{"no pods, but those that could exist", []string{db("{podSelector: {}}"), in("{}", "no pod reaches outside")}, "a pod of shop -> anyone outside on all ports is allowed"},
		{"what others are about", []string{db("{podSelector: {}}"), in(shopDB, "everything -> shop/db: deny", "everything else -> shop/db: deny")}, ""},
		{"a NetNamespace", []string{netNamespace("shop", "7") + db("{podSelector: {}}"), in(shopDB, noOthers)}, ""},
		{"an EgressNetworkPolicy", []string{egressPolicy("Deny"), in("{isolation: namespaces, pods: [{name: tea/a}, {name: tea/b}]}", "tea/a -> 198.51.100.0/24: deny", "tea/a -> 198.51.101.0/24: allow", "tea/a -> tea/b: allow")}, ""},
		{"an EgressNetworkPolicy that allows", []string{egressPolicy("Allow"), in("{isolation: namespaces, pods: [{name: tea/a}]}", "tea/a -> 198.51.100.0/24: deny")}, "tea/a -> 198.51.100.0/24 on all ports is allowed"},
		{"a NetNamespace that is not understood", []string{strings.Replace(netNamespace("shop", "7"), "netid: 7", "netid: x", 1) + db("{podSelector: {}}"), in(shopDB, noOthers)}, "netid"},
	} {
		out, err := run(t, c.texts)
		if err != nil && !errors.Is(err, report.ErrFaults) {
			out += err.Error()
		}
		if (err == nil) != (c.says == "") || !strings.Contains(unwrapped(out), c.says) {
			t.Errorf("%s: %v, want %q\n%s", c.what, err, c.says, out)
		}
	}
}

// TestIsolatedNamespaces: namespaces are apart without any policy, but for those of one number and for global ones.
func TestIsolatedNamespaces(t *testing.T) {
	numbers := netNamespace("tea", "7") + netNamespace("milk", "7") + netNamespace("other", "8") + netNamespace("common", "0") + netNamespace("later", "7")
	cluster := "{families: [IPv4, IPv6], isolation: namespaces, pods: [{name: tea/a}, {name: milk/a}, {name: other/a}, {name: common/a}, {name: alone/a}, {name: alone/b}]}"
	for _, c := range []struct{ expect, says string }{
		{"tea/a -> milk/a: allow", ""},
		{"tea/a -> other/a: deny", ""},
		{"alone/a -> alone/b: allow", ""},
		{"common/a -> everything: allow", ""},
		{"everything -> common/a: allow", ""},
		{"outside -> everything except outside: allow", ""},
		{"no pod outside namespace:alone or namespace:common reaches alone/a", ""},
		{"no pod outside namespace:tea or namespace:milk or namespace:common reaches tea/a", "a pod of later -> tea/a on all ports is allowed"},
		{"any pod in namespaces:new -> any pod in namespaces:new: allow", "ingress[1] (other namespaces) denies it"},
		{"any pod in namespaces:new -> any pod in namespaces:new: deny", "is allowed"},
		{"no pod outside namespace:other reaches other/a", "common/a -> other/a on all ports is allowed"},
		{"tea/a -> other/a: allow", "is denied"},
	} {
		out, err := run(t, []string{numbers, in(cluster, c.expect)})
		if (err == nil) != (c.says == "") || err != nil && !errors.Is(err, report.ErrFaults) || !strings.Contains(unwrapped(out), c.says) {
			t.Errorf("%s: %v, want %q\n%s", c.expect, err, c.says, out)
		}
	}
	for cluster, says := range map[string]string{
		"{isolation: pods, pods: [{name: tea/a}]}":                                 `spec.cluster.isolation: "pods": must be namespaces or none`,
		"{isolation: namespaces, pods: [{name: tea/a, addresses: [192.0.2.1]}]}":   "spec.cluster.podCIDRs: the address 192.0.2.1 of pod tea/a is in none of them",
		"{isolation: namespaces, podCIDRs: [192.0.2.0/24], pods: [{name: tea/a}]}": "",
	} {
		out, err := run(t, []string{numbers, in(cluster, "everything -> tea/a: allow")})
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q\n%s", cluster, err, says, out)
		}
	}
	if out, err := run(t, []string{numbers + policies, expecting("dev/job -> shop/web: allow")}); err != nil || !strings.Contains(out, "note: NetNamespaces and EgressNetworkPolicies are ignored") {
		t.Errorf("without isolation: %v\n%s", err, out)
	}
}

// TestNoTestIsSkipped: what looks like a test is one, or an error.
func TestNoTestIsSkipped(t *testing.T) {
	test := expecting("shop/web -> shop/db 5433/tcp: allow")
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(test, "\n")), "\n", "\n  ") + "\n"
	holds := strings.Replace(expecting("shop/web -> shop/db 5432/tcp: allow"), "name: shop}", "name: other}", 1)
	for _, c := range []struct{ text, says string }{
		{list, `FAIL 2.yaml:14: expected`},
		{strings.Replace(test, "PolicyTest", "PolicyTests", 1), `2.yaml: policytests/shop: kind: unknown kind "PolicyTests"`},
		{strings.Replace(list, "PolicyTest", "Policytest", 1), `2.yaml: policytest/shop: kind: unknown kind "Policytest"`},
		{test + "kind: PolicyTest\n", `2.yaml: line 12: mapping key "kind" already defined at line 2`},
		{test + "spec: {expect: []}\n", `mapping key "spec" already defined at line 4`},
		{"a: &kind PolicyTest\n" + strings.Replace(test, "kind: PolicyTest", "kind: *kind", 1), "not found where YAML has it"},
		{"# nothing\n", ""},
		{"---\n---\n# nothing\n---\n", ""},
		{"apiVersion: felixlike.io/v1alpha1\nkind: ExternalIPPool\nmetadata: {name: p}\nspec: {ipRanges: [{cidr: 198.51.100.0/24}]}\n", ""},
	} {
		out, err := run(t, []string{policies, holds, c.text})
		if err != nil && !errors.Is(err, report.ErrFaults) {
			out += err.Error()
		}
		if (err == nil) != (c.says == "") || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v, want %q\n%s", c.text, err, c.says, out)
		}
	}
}

// ending ends after it was asked some times.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestExpectationsEnd: one expectation ends with the context, while pods that could exist are made and while packets are judged; and
// if nearly none of these pods is in its set.
func TestExpectationsEnd(t *testing.T) {
	for _, expect := range []string{"everything -> everything: allow", noOthers} {
		file := filepath.Join(t.TempDir(), "all.yaml")
		if err := os.WriteFile(file, []byte(db("{podSelector: {}}")+"---\n"+in(shopDB, expect)), 0o600); err != nil {
			t.Fatal(err)
		}
		input, err := Read([]string{file}, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Without packets, it is asked twice.
		if r, err := Run(&ending{t.Context(), 3}, input); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %+v, %v", expect, r, err)
		}
	}
	cluster := "{pods: [{name: shop/db, labels: {app: db}}]}"
	var peers, namespaces []string
	for i := range 8 {
		peers = append(peers, fmt.Sprintf("{podSelector: {matchLabels: {l%d: x}}, namespaceSelector: {}}", i))
		namespaces = append(namespaces, fmt.Sprintf("{podSelector: {}, namespaceSelector: {matchLabels: {n%d: x}}}", i))
	}
	out, err := run(t, []string{db(strings.Join(append(peers, namespaces...), ", ")), in(cluster, "no pod in pods:only=one,l0=x,l1=x,l2=x,l3=x,l4=x,l5=x,l6=x,l7=x reaches shop/db")})
	if !errors.Is(err, report.ErrFaults) || !strings.Contains(unwrapped(out), "distinguish more than") {
		t.Errorf("%v\n%s", err, out)
	}
}
