package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// egressNetworkPolicy builds one of the name "namespace/name" with the YAML of its rules.
func egressNetworkPolicy(t *testing.T, name, rules string) *antrea.EgressNetworkPolicy {
	t.Helper()
	o := &antrea.EgressNetworkPolicy{}
	o.Namespace, o.Name, _ = strings.Cut(name, "/")
	if err := yaml.UnmarshalStrict([]byte(rules), &o.Spec.Egress); err != nil {
		t.Fatal(err)
	}
	return o
}

// egressState has a node with pods of the namespaces tea and milk, isolated.
func egressState(t *testing.T) *state {
	s := newState(t)
	s.SetIsolation(true)
	s.SetNode(newNode("here", "192.0.2.1", "10.0.0.0/24"))
	for i, n := range []string{"tea", "milk"} {
		s.SetNamespace(newNamespace(n))
		s.SetPod(newPod(n+"/a", fmt.Sprintf("10.0.0.%d", i+2), fmt.Sprintf("fd00::%d", i+2)))
	}
	return s
}

// leaving writes the rules by which a pod's packets leave the cluster, and the problems.
func (s *state) leaving(namespace string) string {
	s.Helper()
	s.flush()
	var lines []string
	for _, id := range s.model.Endpoints[model.PodID{Namespace: namespace, Name: "a"}].Egress.Admin {
		for _, r := range s.model.Policies[id].Egress {
			peers := "any"
			if !r.AnyPeer {
				peers = ""
				for _, g := range r.Peers {
					peers += " " + s.model.Groups[g].Description
				}
			}
			lines = append(lines, fmt.Sprintf("%s %s: %s%s", id, model.TitledRule(r.Name, r.Title), r.Action, " "+strings.TrimSpace(peers)))
		}
	}
	for _, p := range s.AntreaProblems() {
		if strings.HasPrefix(p.Object.Kind, "EgressNetworkPolicy") {
			lines = append(lines, fmt.Sprintf("%s/%s %s: %s", p.Object.Namespace, p.Object.Name, p.Field, p.Reason))
		}
	}
	return strings.Join(lines, "\n")
}

// TestEgressNetworkPolicyRules: the first rule that matches decides. So a Deny gets only the addresses that no rule before it has. A rule that is
// not understood denies everything, unless it is an Allow: then it matches nothing.
func TestEgressNetworkPolicyRules(t *testing.T) {
	const stays = "egressnetworkpolicy.network.openshift.io/tea/p cluster (pods of the cluster): next pod prefixes of all nodes\n"
	const all = "deny 0.0.0.0/0 ::/0\n"
	for _, c := range []struct{ name, rules, want string }{
		{"none", `[]`, ""},
		{"allow", `[{type: Allow, to: {cidrSelector: 192.0.2.0/24}}]`, ""},
		{
			"in order", `[{type: Allow, to: {cidrSelector: 198.51.100.0/24}}, {type: Deny, to: {cidrSelector: 198.51.100.0/25}}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}},
			{type: Allow, to: {cidrSelector: 203.0.113.0/24}}, {type: Deny, to: {cidrSelector: '2001:db8::/32'}}]`,
			stays + "egressnetworkpolicy.network.openshift.io/tea/p egress[2] (0.0.0.0/0): deny 0.0.0.0/0 except 198.51.100.0/24 198.51.100.0/25\n" +
				"egressnetworkpolicy.network.openshift.io/tea/p egress[4] (2001:db8::/32): deny 2001:db8::/32",
		},
		{
			"halves", `[{type: Allow, to: {cidrSelector: 0.0.0.0/1}}, {type: Allow, to: {cidrSelector: 128.0.0.0/1}}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}}]`, "",
		},
		{"0.0.0.0/32", `[{type: Deny, to: {cidrSelector: 0.0.0.0/32}}]`, stays + "egressnetworkpolicy.network.openshift.io/tea/p egress[0] (0.0.0.0/32): deny 0.0.0.0/0"},
		{
			"a name that is allowed", `[{type: Allow, to: {dnsName: a.example}}, {type: Deny, to: {cidrSelector: 198.51.100.0/24}}]`,
			stays + "egressnetworkpolicy.network.openshift.io/tea/p egress[1] (198.51.100.0/24): deny 198.51.100.0/24\ntea/p spec.egress[0].to.dnsName: not supported; the rule matches nothing",
		},
		{
			"a name that is denied", `[{type: Deny, to: {dnsName: a.example}}]`,
			stays + "egressnetworkpolicy.network.openshift.io/tea/p egress[0] (a.example): " + all + "tea/p spec.egress[0].to.dnsName: not supported; the rule denies everything that leaves the cluster",
		},
		{
			"no peer", `[{type: Deny}]`,
			stays + "egressnetworkpolicy.network.openshift.io/tea/p egress[0]: " + all + "tea/p spec.egress[0].to: needs cidrSelector or dnsName; the rule denies everything that leaves the cluster",
		},
		{
			"both", `[{type: Allow, to: {cidrSelector: 0.0.0.0/0, dnsName: a.example}}]`,
			"tea/p spec.egress[0].to: needs cidrSelector or dnsName; the rule matches nothing",
		},
		{
			"no CIDR", `[{type: Deny, to: {cidrSelector: 198.51.100.1}}]`,
			stays + "egressnetworkpolicy.network.openshift.io/tea/p egress[0] (198.51.100.1): " + all + `tea/p spec.egress[0].to.cidrSelector: "198.51.100.1" is not a CIDR; the rule denies everything that leaves the cluster`,
		},
		{
			"no type", `[{type: allow, to: {cidrSelector: 198.51.100.0/24}}]`,
			stays + "egressnetworkpolicy.network.openshift.io/tea/p egress[0] (198.51.100.0/24): " + all + `tea/p spec.egress[0].type: "allow" is not Allow or Deny; the rule denies everything that leaves the cluster`,
		},
		{
			"too many", "[" + strings.Repeat("{type: Allow, to: {cidrSelector: 198.51.100.0/24}}, ", 1001) + "]",
			stays + "egressnetworkpolicy.network.openshift.io/tea/p egress (too many rules): deny any\ntea/p spec.egress: 1001 rules, the limit is 1000; everything that leaves the cluster is denied",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := egressState(t)
			s.SetAntrea(egressNetworkPolicy(t, "tea/p", c.rules))
			equal(t, "tea", s.leaving("tea"), c.want)
			if got := s.leaving("milk"); strings.HasPrefix(got, "egressnetworkpolicy") {
				t.Errorf("milk: %s", got)
			}
		})
	}
}

// TestEgressNetworkPolicyStaged: one that asks to be staged is enforced, and named.
func TestEgressNetworkPolicyStaged(t *testing.T) {
	s := egressState(t)
	o := egressNetworkPolicy(t, "tea/p", `[{type: Deny, to: {cidrSelector: 198.51.100.0/24}}]`)
	o.Annotations = map[string]string{model.EnforceAnnotation: "no"}
	s.SetAntrea(o)
	equal(t, "tea", s.leaving("tea"), `egressnetworkpolicy.network.openshift.io/tea/p cluster (pods of the cluster): next pod prefixes of all nodes
egressnetworkpolicy.network.openshift.io/tea/p egress[0] (198.51.100.0/24): deny 198.51.100.0/24
tea/p metadata.annotations[felixlike.io/enforce]: not supported for EgressNetworkPolicies: the policy is enforced`)
}

// TestEgressNetworkPolicyConflicts: two objects in a namespace, and one in a namespace that is joined, deny everything that leaves the
// cluster and are named. One in a global namespace is ignored and named. None means anything without isolation.
func TestEgressNetworkPolicyConflicts(t *testing.T) {
	const closed = "egressnetworkpolicy.network.openshift.io/tea/p cluster (pods of the cluster): next pod prefixes of all nodes\n" +
		"egressnetworkpolicy.network.openshift.io/tea/p egress (in conflict): deny any"
	const alone = "egressnetworkpolicy.network.openshift.io/tea/p cluster (pods of the cluster): next pod prefixes of all nodes\n" +
		"egressnetworkpolicy.network.openshift.io/tea/p egress[0] (198.51.100.0/24): deny 198.51.100.0/24"
	const deny = `[{type: Deny, to: {cidrSelector: 198.51.100.0/24}}]`
	const joined = "\ntea/p spec.egress: namespaces milk, tea are joined: everything that their pods send out of the cluster is denied until tea is isolated, or none of them has an EgressNetworkPolicy"
	s := egressState(t)
	s.SetAntrea(egressNetworkPolicy(t, "tea/p", deny))
	equal(t, "one", s.leaving("tea"), alone)
	s.SetAntrea(egressNetworkPolicy(t, "tea/q", deny))
	equal(t, "two", s.leaving("tea"), closed+
		"\ntea/p spec.egress: tea/q applies to the same pods: everything that they send out of the cluster is denied until only one is left"+
		"\ntea/q spec.egress: tea/p applies to the same pods: everything that they send out of the cluster is denied until only one is left")
	s.SetAntrea(egressNetworkPolicy(t, "tea/q", "[]"))
	equal(t, "one without rules", s.leaving("tea"), alone)
	s.SetAntrea(project("tea", 7))
	equal(t, "a number", s.leaving("tea"), alone)
	s.SetAntrea(project("milk", 7))
	equal(t, "joined", s.leaving("tea"), closed+joined)
	equal(t, "joined, the other", s.leaving("milk"), closed+joined)
	s.SetAntrea(project("milk", 8))
	equal(t, "isolated again", s.leaving("tea"), alone)
	equal(t, "isolated again, the other", s.leaving("milk"), "")
	s.SetAntrea(project("tea", 0))
	equal(t, "global", s.leaving("tea"), "tea/p spec.egress: ignored: namespace tea is global (netid 0)")
	s.DeleteAntrea(project("tea", 0).ID())
	equal(t, "without a NetNamespace", s.leaving("tea"), alone)
	s.SetIsolation(false)
	equal(t, "without isolation", s.leaving("tea"), "")
	s.SetIsolation(true)
	equal(t, "with isolation again", s.leaving("tea"), alone)
	s.DeleteAntrea(antrea.ID{Kind: antrea.KindEgressNetworkPolicy, Namespace: "tea", Name: "p"})
	equal(t, "deleted", s.leaving("tea"), "")
}

// TestEgressNetworkPolicyCutsOff: a rule that denies the API server or DNS on nodes is named, unless an earlier one allows them.
func TestEgressNetworkPolicyCutsOff(t *testing.T) {
	s := egressState(t)
	boss := newNode("boss", "192.0.2.7", "10.0.7.0/24")
	boss.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	s.SetNode(boss)
	dns := onNode(newPod("kube-system/dns k8s-app=kube-dns"), "boss")
	dns.Spec.HostNetwork = true
	s.SetPod(dns)
	set := func(rules string) string {
		s.SetAntrea(egressNetworkPolicy(t, "milk/p", rules))
		return s.leaving("tea")
	}
	const all = `{type: Deny, to: {cidrSelector: 0.0.0.0/0}}]`
	equal(t, "both denied", set(`[`+all),
		"milk/p spec.egress[0]: denies DNS at 192.0.2.7 (pod kube-system/dns): put a rule that allows it before, unless the pods do without\n"+
			"milk/p spec.egress[0]: denies the API server at 192.0.2.7 (node boss): put a rule that allows it before, unless the pods do without")
	equal(t, "both allowed", set(`[{type: Allow, to: {cidrSelector: 192.0.2.7/32}}, `+all), "")
	dns.Labels["k8s-app"] = "node-local-dns"
	s.SetPod(dns)
	equal(t, "a cache", set(`[{type: Allow, to: {cidrSelector: 192.0.2.7/32}}, `+all),
		"milk/p spec.egress[1]: denies DNS at 169.254.20.10 (its cache of each node): put a rule that allows it before, unless the pods do without")
	s.DeletePod(model.PodID{Namespace: "kube-system", Name: "dns"})
	equal(t, "no cache", set(`[{type: Allow, to: {cidrSelector: 192.0.2.7/32}}, `+all), "")
	s.SetAntrea(egressNetworkPolicy(t, "milk/q", `[`+all))
	if got := set(`[` + all); !strings.Contains(got, "milk/q applies to the same pods") || strings.Contains(got, "denies the API server") {
		t.Errorf("in a conflict, rules are named that are not in force: %s", got)
	}
}
