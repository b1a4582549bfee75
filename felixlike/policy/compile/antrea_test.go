package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

func antreaPolicyOf(t *testing.T, kind antrea.Kind, spec string) antrea.Object {
	t.Helper()
	o := kind.New()
	if err := yaml.UnmarshalStrict([]byte("spec: "+spec), o); err != nil {
		t.Fatal(err)
	}
	o.SetName("p")
	if kind.Namespaced() {
		o.SetNamespace("ns")
	}
	return o
}

// antreaObjects have a tier and groups.
func antreaObjects(t *testing.T) AntreaObjects {
	t.Helper()
	all := map[antrea.ID]antrea.Object{}
	for name, spec := range map[string]string{
		"pods": "{podSelector: {}}", "blocks": "{ipBlocks: [{cidr: 192.0.2.0/24}]}", "both": "{childGroups: [pods, blocks]}",
		"deep": "{childGroups: [both]}", "half": "{childGroups: [pods, none]}", "service": "{serviceReference: {name: s}}", "far": "{namespaceSelector: {}}",
	} {
		for _, kind := range []antrea.Kind{antrea.KindClusterGroup, antrea.KindGroup} {
			o := antreaPolicyOf(t, kind, spec)
			o.SetName(name)
			all[o.ID()] = o
		}
	}
	for name, priority := range map[string]int{"mine": 33, "high": 260} {
		o := antreaPolicyOf(t, antrea.KindTier, fmt.Sprintf("{priority: %d}", priority))
		o.SetName(name)
		all[o.ID()] = o
	}
	return func(id antrea.ID) antrea.Object { return all[id] }
}

// described describes policies in few words.
func described(policies []*Policy) string {
	var all []string
	for _, p := range policies {
		var rules []string
		for _, d := range model.Directions() {
			for _, r := range p.Model.Rules(d) {
				what := r.Name + " " + r.Action.String()
				if r.AnyPeer && r.AnyPort {
					what += " all"
				}
				rules = append(rules, what)
			}
		}
		var targets []string
		for _, s := range p.Targets {
			targets = append(targets, s.String())
		}
		for _, s := range p.Nodes {
			targets = append(targets, "nodes "+s.String())
		}
		all = append(all, fmt.Sprintf("%s %d/%v {%s} %s", p.Model.ID, p.Model.Precedence.Tier, p.Model.Precedence.Priority, strings.Join(targets, "; "), strings.Join(rules, ", ")))
	}
	return strings.Join(all, " | ")
}

// TestAntreaPolicy: what compiles, where, in which order; and what fails closed, by name.
func TestAntreaPolicy(t *testing.T) {
	const (
		head  = "priority: 5, appliedTo: [{podSelector: {matchLabels: {a: b}}}]"
		here  = "{pods a=b in all namespaces}"
		every = "{all pods in all namespaces}"
	)
	cluster, namespaced := antrea.KindClusterNetworkPolicy, antrea.KindNetworkPolicy
	tests := []struct {
		name    string
		kind    antrea.Kind
		spec    string
		want    string
		problem string
	}{
		{
			"default tier", cluster, "{" + head + ", ingress: [{action: Drop}], egress: [{action: Reject}, {action: Pass}]}",
			"clusternetworkpolicy.crd.antrea.io/p 250/5 " + here + " ingress[0] deny all, egress[0] reject all, egress[1] pass all", "",
		},
		{
			"own tier, part of a whole number", cluster, "{tier: mine, priority: 5.5, appliedTo: [{podSelector: {matchLabels: {a: b}}}], ingress: [{action: Allow}]}",
			"clusternetworkpolicy.crd.antrea.io/p 33/5.5 " + here + " ingress[0] allow all", "",
		},
		{"namespace", namespaced, "{" + head + ", tier: SecurityOps, ingress: [{action: Allow}]}", "networkpolicy.crd.antrea.io/ns/p 100/5 {pods a=b in namespace ns} ingress[0] allow all", ""},
		{
			"two targets", cluster, "{priority: 1, appliedTo: [{podSelector: {}}, {group: pods}], ingress: [{action: Drop}]}",
			"clusternetworkpolicy.crd.antrea.io/p 250/1 {all pods in all namespaces; all pods in all namespaces} ingress[0] deny all", "",
		},
		{
			"parts keep the order", cluster, `{priority: 1, ingress: [{action: Drop, appliedTo: [{podSelector: {}}]}, {action: Allow, appliedTo: [{podSelector: {}}]},
			{action: Drop, appliedTo: [{podSelector: {matchLabels: {a: b}}}]}], egress: [{action: Drop, appliedTo: [{podSelector: {}}]}]}`,
			"clusternetworkpolicy.crd.antrea.io/p#1 250/1 " + every + " ingress[0] deny all, ingress[1] allow all | clusternetworkpolicy.crd.antrea.io/p#2 250/1 " + here + " ingress[2] deny all | clusternetworkpolicy.crd.antrea.io/p#3 250/1 " + every + " egress[0] deny all", "",
		},
		{
			"equal targets of rules are no parts", cluster, "{priority: 1, ingress: [{action: Drop, appliedTo: [{group: pods}]}], egress: [{action: Drop, appliedTo: [{group: pods}]}]}",
			"clusternetworkpolicy.crd.antrea.io/p 250/1 " + every + " ingress[0] deny all, egress[0] deny all", "",
		},
		{
			"no tier", cluster, "{" + head + ", tier: none, ingress: [{action: Allow}, {action: Pass}, {action: Drop}]}",
			"clusternetworkpolicy.crd.antrea.io/p 0/5 " + here + " ingress[1] deny all, ingress[2] deny all", `spec.tier: tier "none" does not exist; every Allow matches nothing, and every Pass denies what it matches`,
		},
		{"tier behind NetworkPolicies", cluster, "{" + head + ", tier: high, ingress: [{action: Allow}]}", "", `spec.tier: tier "high" has no valid priority; every Allow`},
		{"priority", cluster, "{priority: 0.5, appliedTo: [{podSelector: {}}], ingress: [{action: Drop}]}", "clusternetworkpolicy.crd.antrea.io/p 250/0 " + every + " ingress[0] deny all", "spec.priority: 0.5 is not between 1 and 10000"},
		{
			"Pass in the baseline", cluster, "{" + head + ", tier: Baseline, ingress: [{action: Pass}, {action: Allow}]}",
			"clusternetworkpolicy.crd.antrea.io/p 253/5 " + here + " ingress[0] deny all, ingress[1] allow all", "spec.ingress[0].action: Pass is not allowed in tier baseline, which no tier follows; the rule denies what it matches",
		},
		{"no appliedTo", cluster, "{priority: 1, ingress: [{action: Pass}]}", "clusternetworkpolicy.crd.antrea.io/p 250/1 " + every + " ingress[0] deny all", "spec.ingress[0]: neither the rule nor the policy has an appliedTo"},
		{"appliedTo twice", cluster, "{" + head + ", ingress: [{action: Drop, appliedTo: [{group: pods}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/5 " + every + " ingress[0] deny all", "spec.ingress[0].appliedTo: not allowed together with spec.appliedTo"},
		{"appliedTo a Service", namespaced, "{priority: 1, appliedTo: [{service: {name: s}}], ingress: [{action: Drop}]}", "networkpolicy.crd.antrea.io/ns/p 250/1 {all pods in namespace ns} ingress[0] deny all", "spec.appliedTo[0].service: not supported; it then selects all pods of the namespace, an Allow matches nothing"},
		{"appliedTo nodes", cluster, "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}", "clusternetworkpolicy.crd.antrea.io/p 250/1 {nodes *} ingress[0] deny all", ""},
		{"appliedTo nodes in each rule", cluster, "{priority: 1, ingress: [{action: Drop, appliedTo: [{nodeSelector: {}}]}], egress: [{action: Pass, appliedTo: [{nodeSelector: {matchLabels: {a: b}}}]}]}", "clusternetworkpolicy.crd.antrea.io/p#1 250/1 {nodes *} ingress[0] deny all | clusternetworkpolicy.crd.antrea.io/p#2 250/1 {nodes a=b} egress[0] pass all", ""},
		{"appliedTo nodes in a NetworkPolicy", namespaced, "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}", "", "spec.appliedTo[0].nodeSelector: not allowed in a NetworkPolicy, which applies to pods of its namespace: it selects no pod"},
		{"appliedTo a wrong selector of nodes", cluster, "{priority: 1, appliedTo: [{nodeSelector: {matchLabels: {a: '*'}}}], ingress: [{action: Drop}]}", "", ": it selects no node"},
		{"appliedTo nodes, peers in the own namespace", cluster, "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop, from: [{namespaces: {match: Self}}]}]}", "", "spec.appliedTo[0].nodeSelector: not allowed with a peer in the subject's own namespace, which a node does not have: it selects no node"},
		{"appliedTo nodes in one rule, pods in another", cluster, "{priority: 1, ingress: [{action: Drop, appliedTo: [{nodeSelector: {}}]}, {action: Drop, appliedTo: [{podSelector: {}}]}]}", "clusternetworkpolicy.crd.antrea.io/p#2 250/1 " + every + " ingress[1] deny all", "spec.ingress[0].appliedTo[0].nodeSelector: not allowed in a policy that applies to pods, too: it selects no node"},
		{"named port of a node", cluster, "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Allow, ports: [{port: web}]}, {action: Drop, ports: [{port: 80}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/1 {nodes *} ingress[1] deny", "spec.ingress[0].ports: a node has no named ports; the rule matches nothing"},
		{"appliedTo external entities", cluster, "{priority: 1, appliedTo: [{externalEntitySelector: {}}], ingress: [{action: Drop}]}", "", "spec.appliedTo[0].externalEntitySelector: not supported: it selects no pod"},
		{"appliedTo nodes and pods", cluster, "{priority: 1, appliedTo: [{nodeSelector: {}}, {podSelector: {}}], ingress: [{action: Drop}]}", "clusternetworkpolicy.crd.antrea.io/p 250/1 " + every + " ingress[0] deny all", "spec.appliedTo[0].nodeSelector: not allowed in a policy that applies to pods, too: it selects no node"},
		{"appliedTo nodes together with pods", cluster, "{priority: 1, appliedTo: [{nodeSelector: {}, podSelector: {}}], ingress: [{action: Allow}, {action: Drop}]}", "clusternetworkpolicy.crd.antrea.io/p 250/1 " + every + " ingress[1] deny all", "spec.appliedTo[0].nodeSelector: not allowed together with a group"},
		{"appliedTo namespaces of a NetworkPolicy", namespaced, "{priority: 1, appliedTo: [{namespaceSelector: {}}], ingress: [{action: Drop}]}", "networkpolicy.crd.antrea.io/ns/p 250/1 {all pods in namespace ns} ingress[0] deny all", "spec.appliedTo[0].namespaceSelector: not allowed"},
		{"appliedTo a group with namespaces of a NetworkPolicy", namespaced, "{priority: 1, appliedTo: [{group: far}], ingress: [{action: Drop}]}", "", `spec.appliedTo[0].group: group "far" has a namespaceSelector`},
		{"appliedTo no group", cluster, "{priority: 1, appliedTo: [{group: none}], ingress: [{action: Drop}]}", "", `spec.appliedTo[0].group: group "none", or a child of it, does not exist: it selects no pod`},
		{"appliedTo blocks", cluster, "{priority: 1, appliedTo: [{group: both}], ingress: [{action: Drop}]}", "clusternetworkpolicy.crd.antrea.io/p 250/1 " + every + " ingress[0] deny all", `spec.appliedTo[0].group: group "both" has ipBlocks: these select no pod`},
		{"appliedTo a deep group", cluster, "{priority: 1, appliedTo: [{group: deep}], ingress: [{action: Drop}]}", "clusternetworkpolicy.crd.antrea.io/p 250/1 " + every + " ingress[0] deny all", `a child group must not have childGroups; until it can be understood, the policy applies to the pods that the group selected before`},
		{
			"peers", cluster, "{" + head + ", ingress: [{action: Allow, from: [{group: both}, {nodeSelector: {}}, {ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.1/32]}}], ports: [{port: 80, endPort: 90}, {protocol: UDP, port: dns}]}]}",
			"clusternetworkpolicy.crd.antrea.io/p 250/5 " + here + " ingress[0] allow", "",
		},
		{"no group", cluster, "{" + head + ", ingress: [{action: Allow, from: [{group: none}]}, {action: Drop, from: [{group: half}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/5 " + here + " ingress[1] deny all", `spec.ingress[0].from[0].group: group "none", or a child of it, does not exist; the rule matches nothing`},
		{"group of a Service", cluster, "{" + head + ", ingress: [{action: Pass, from: [{group: service}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/5 " + here + " ingress[0] deny all", `group "service": serviceReference is not supported; the rule denies everything`},
		{"self in a NetworkPolicy", namespaced, "{" + head + ", ingress: [{action: Drop, from: [{namespaces: {match: Self}}]}]}", "networkpolicy.crd.antrea.io/ns/p 250/5 {pods a=b in namespace ns} ingress[0] deny all", "spec.ingress[0].from[0].namespaces: not allowed in a NetworkPolicy; the rule denies everything"},
		{"no label key", cluster, "{" + head + ", ingress: [{action: Drop, from: [{namespaces: {sameLabels: [a b]}}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/5 {pods a=b in all namespaces} ingress[0] deny all", `spec.ingress[0].from[0].namespaces.sameLabels[0]: invalid key "a b"`},
		{"self and same labels", cluster, "{" + head + ", ingress: [{action: Drop, from: [{namespaces: {match: Self, sameLabels: [a]}}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/5 {pods a=b in all namespaces} ingress[0] deny all", "spec.ingress[0].from[0].namespaces: match together with sameLabels"},
		{"bad block", cluster, "{" + head + ", egress: [{action: Drop, to: [{ipBlock: {cidr: 192.0.2.0/33}}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/5 " + here + " egress[0] deny all", `spec.egress[0].to[0].ipBlock: "192.0.2.0/33" is not a CIDR; the rule denies everything`},
		{"bad port", cluster, "{" + head + ", egress: [{action: Allow, ports: [{port: 70000}]}, {action: Drop, ports: [{sourcePort: 7}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/5 " + here + " egress[1] deny all", "spec.egress[0].ports[0].port: 70000 is not between 1 and 65535; the rule matches nothing"},
		{"action", cluster, "{" + head + ", egress: [{action: Log}]}", "clusternetworkpolicy.crd.antrea.io/p 250/5 " + here + " egress[0] deny all", `spec.egress[0].action: unsupported action "Log"`},
		{"wrong direction", cluster, "{" + head + ", egress: [{action: Drop, from: [{podSelector: {}}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/5 " + here + " egress[0] deny all", "spec.egress[0].from: not allowed in an egress rule"},
	}
	objects := antreaObjects(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			policies, problems, _ := AntreaPolicy(antreaPolicyOf(t, test.kind, test.spec), objects, nil, AntreaNamespace{}, GroupIDHash)
			if got := described(policies); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			var all []string
			for _, p := range problems {
				all = append(all, p.Error())
			}
			if text := strings.Join(all, "\n"); !strings.Contains(text, test.problem) || (text == "") != (test.problem == "") {
				t.Errorf("problems: %s\nwant: %s", text, test.problem)
			}
		})
	}
}

// TestAntreaRefusesByName: fields that are not supported close their rule, and are named.
func TestAntreaRefusesByName(t *testing.T) {
	for field, rule := range map[string]string{
		"spec.egress[0].to[0].fqdn":                   "to: [{fqdn: a.example}]",
		"spec.egress[0].to[0].serviceAccount":         "to: [{serviceAccount: {name: s}}]",
		"spec.egress[0].to[0].externalEntitySelector": "to: [{externalEntitySelector: {}}]",
		"spec.egress[0].to[0].scope":                  "to: [{podSelector: {}, scope: ClusterSet}]",
		"spec.egress[0].protocols[1].igmp":            "protocols: [{icmp: {icmpType: 8}}, {igmp: {igmpType: 17}}]",
		"spec.egress[0].toServices":                   "toServices: [{name: s}]",
		"spec.egress[0].ports[0].sourcePort":          "ports: [{sourcePort: 7}]",
	} {
		for action, want := range map[string]string{
			"Allow": "", "Drop": "egress[0] deny all", "Reject": "egress[0] deny all", "Pass": "egress[0] deny all",
		} {
			spec := "{priority: 1, appliedTo: [{podSelector: {}}], egress: [{action: " + action + ", " + rule + "}]}"
			policies, problems, _ := AntreaPolicy(antreaPolicyOf(t, antrea.KindClusterNetworkPolicy, spec), antreaObjects(t), nil, AntreaNamespace{}, GroupIDHash)
			if got := described(policies); !strings.HasSuffix(got, want) || (got == "") != (want == "") {
				t.Errorf("%s: %s", spec, got)
			}
			if len(problems) != 1 || problems[0].Field != field || !strings.HasPrefix(problems[0].Reason, "not supported; the rule ") {
				t.Errorf("%s: %v", spec, problems)
			}
		}
	}
}

// TestAntreaL7: a rule with l7Protocols denies everything, whatever its action: for Antrea, also an
// Allow decides every packet that it matches.
func TestAntreaL7(t *testing.T) {
	for _, action := range []string{"Allow", "Drop", "Reject", "Pass"} {
		for _, spec := range []string{
			"{priority: 1, appliedTo: [{podSelector: {}}], egress: [{action: " + action + ", l7Protocols: [{http: {}}]}]}",
			"{priority: 1, egress: [{action: " + action + ", l7Protocols: [{http: {}}], to: [{fqdn: a.example}]}]}",
		} {
			policies, problems, _ := AntreaPolicy(antreaPolicyOf(t, antrea.KindClusterNetworkPolicy, spec), antreaObjects(t), nil, AntreaNamespace{}, GroupIDHash)
			if got := described(policies); !strings.HasSuffix(got, "egress[0] deny all") {
				t.Errorf("%s: %s", spec, got)
			}
			named := func(p model.Problem) bool {
				return p.Field == "spec.egress[0].l7Protocols" && p.Reason == "not supported; the rule denies everything"
			}
			if !slices.ContainsFunc(problems, named) {
				t.Errorf("%s: %v", spec, problems)
			}
		}
	}
}

// TestAntreaWithin: a policy with peers in the subject's own namespace is compiled for one, and
// applies to its pods there.
func TestAntreaWithin(t *testing.T) {
	const spec = "{priority: 1, appliedTo: [{namespaceSelector: {matchLabels: {env: x}}}], ingress: [{action: Allow, from: [{namespaces: {match: Self}}]}, {action: Drop}]}"
	p := antreaPolicyOf(t, antrea.KindClusterNetworkPolicy, spec)
	if !AntreaMatchesSelf(p) {
		t.Fatal("does not match Self")
	}
	sets := label.NewSets()
	for env, want := range map[string]string{"x": "clusternetworkpolicy.crd.antrea.io/p@shop 250/1 {all pods in namespace shop} ingress[0] allow, ingress[1] deny all", "y": ""} {
		policies, problems, _ := AntreaPolicy(p, antreaObjects(t), nil, AntreaNamespace{"shop", sets.Intern(map[string]string{"env": env})}, GroupIDHash)
		if got := described(policies); got != want || len(problems) > 0 {
			t.Errorf("%s: got %s, %v", env, got, problems)
		}
		if want == "" {
			continue
		}
		if g := policies[0].Groups; len(g) != 1 || g[0].Describe() != "all pods in namespace shop" {
			t.Errorf("groups: %v", g)
		}
	}
}

// TestAntreaSameLabels: peers are in the namespaces with the same values of the labels. A subject in a namespace without one of them has no such peers:
// neither an Allow nor a Drop applies to it.
func TestAntreaSameLabels(t *testing.T) {
	const spec = "{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Pass, from: [{namespaces: {sameLabels: [team, env]}, podSelector: {matchLabels: {a: b}}}]}, {action: Drop}]}"
	p := antreaPolicyOf(t, antrea.KindClusterNetworkPolicy, spec)
	if !AntreaMatchesSelf(p) {
		t.Fatal("does not depend on the subject's namespace")
	}
	sets := label.NewSets()
	for _, c := range []struct {
		labels map[string]string
		want   string
	}{
		{map[string]string{"team": "x", "env": "", "other": "y"}, "pods a=b in namespaces env=,team=x"},
		{map[string]string{"team": "x"}, ""},
		{nil, ""},
	} {
		policies, problems, _ := AntreaPolicy(p, antreaObjects(t), nil, AntreaNamespace{"shop", sets.Intern(c.labels)}, GroupIDHash)
		if len(problems) > 0 || len(policies) != 1 {
			t.Fatalf("%v: %s, %v", c.labels, described(policies), problems)
		}
		var groups []string
		for _, g := range policies[0].Groups {
			groups = append(groups, g.Describe())
		}
		if got := strings.Join(groups, ", "); got != c.want {
			t.Errorf("%v: peers %q, want %q (%s)", c.labels, got, c.want, described(policies))
		}
	}
}

// TestAntreaLogging: enableLogging and logLabel are those of the rule. A label that cannot be in a
// line of the log is left out.
func TestAntreaLogging(t *testing.T) {
	const spec = `{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, enableLogging: true, logLabel: audit}, {action: Drop, logLabel: audit}, {action: Drop, enableLogging: true, logLabel: "a b"}]}`
	policies, problems, _ := AntreaPolicy(antreaPolicyOf(t, antrea.KindClusterNetworkPolicy, spec), antreaObjects(t), nil, AntreaNamespace{}, GroupIDHash)
	var got []string
	for _, r := range policies[0].Model.Ingress {
		got = append(got, fmt.Sprintf("%v %q", r.Log, r.LogLabel))
	}
	if text := strings.Join(got, ", "); text != `true "audit", false "", true ""` {
		t.Error(text)
	}
	if len(problems) != 1 || problems[0].Field != "spec.ingress[2].logLabel" {
		t.Errorf("%v", problems)
	}
}

// TestRuleTitles: rules of both APIs have the names that their authors gave them, as a terminal can
// show them.
func TestRuleTitles(t *testing.T) {
	const spec = `{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, name: "no\u001b[31m ops\nok"}, {action: Drop}, {action: Drop, name: %s}]}`
	policies, _, _ := AntreaPolicy(antreaPolicyOf(t, antrea.KindClusterNetworkPolicy, fmt.Sprintf(spec, strings.Repeat("é", 200))), antreaObjects(t), nil, AntreaNamespace{}, GroupIDHash)
	rules := policies[0].Model.Ingress
	if rules[0].Name != "ingress[0]" || rules[0].Title != "no?[31m ops?ok" || rules[1].Title != "" {
		t.Errorf("rules %+v", rules)
	}
	if title := rules[2].Title; len(title) > 100 || !strings.HasPrefix(title, "éé") || !strings.HasSuffix(title, "é...") {
		t.Errorf("title %q", title)
	}
	p := &v1alpha2.ClusterNetworkPolicy{}
	if err := yaml.UnmarshalStrict([]byte("spec: {tier: Admin, subject: {namespaces: {}}, egress: [{name: no-out, action: Deny, to: [{namespaces: {}}]}]}"), p); err != nil {
		t.Fatal(err)
	}
	compiled, _ := ClusterNetworkPolicy(p, GroupIDHash)
	if r := compiled.Model.Egress[0]; r.Name != "egress[0]" || r.Title != "no-out" {
		t.Errorf("rule %+v", r)
	}
}

// TestAntreaICMP: a rule about ICMP has the same numbers of ICMP and ICMPv6, beside its ports.
func TestAntreaICMP(t *testing.T) {
	for rule, want := range map[string]string{
		"protocols: [{icmp: {}}]":                                                                       "icmp, icmpv6",
		"protocols: [{icmp: {icmpType: 8}}]":                                                            "icmp type 8, icmpv6 type 8",
		"protocols: [{icmp: {icmpType: 8, icmpCode: 0}}]":                                               "icmp type 8 code 0, icmpv6 type 8 code 0",
		"protocols: [{icmp: {icmpType: 0, icmpCode: 255}}]":                                             "icmp type 0 code 255, icmpv6 type 0 code 255",
		"protocols: [{icmp: {icmpType: 8}}, {icmp: {icmpType: 9}}, {icmp: {icmpType: 8, icmpCode: 3}}]": "icmp type 8, icmp type 9, icmpv6 type 8, icmpv6 type 9",
		"protocols: [{icmp: {icmpType: 8}}, {icmp: {}}]":                                                "icmp, icmpv6",
		"protocols: [{icmp: {icmpType: 3}}], ports: [{port: 80}]":                                       "icmp type 3, tcp/80, icmpv6 type 3",
		"ports: [{port: 80}], protocols: []":                                                            "tcp/80",
	} {
		spec := "{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, " + rule + "}]}"
		policies, problems, _ := AntreaPolicy(antreaPolicyOf(t, antrea.KindClusterNetworkPolicy, spec), antreaObjects(t), nil, AntreaNamespace{}, GroupIDHash)
		if len(problems) > 0 || len(policies) != 1 || len(policies[0].Model.Ingress) != 1 {
			t.Errorf("%s: %v, problems %v", spec, described(policies), problems)
			continue
		}
		var got []string
		for _, r := range policies[0].Model.Ingress[0].Ports {
			got = append(got, r.String())
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %v, want %s", spec, got, want)
		}
	}
	for field, rule := range map[string]string{
		"spec.ingress[0].protocols[0].icmp.icmpType: 256 is not between 0 and 254":   "{icmp: {icmpType: 256}}",
		"spec.ingress[0].protocols[0].icmp.icmpType: 255 is not between 0 and 254":   "{icmp: {icmpType: 255}}",
		"spec.ingress[0].protocols[0].icmp.icmpType: -1 is not between 0 and 254":    "{icmp: {icmpType: -1}}",
		"spec.ingress[0].protocols[0].icmp.icmpCode: 256 is not between 0 and 255":   "{icmp: {icmpType: 8, icmpCode: 256}}",
		"spec.ingress[0].protocols[0].icmp.icmpCode: not supported without icmpType": "{icmp: {icmpCode: 0}}",
		"spec.ingress[0].protocols[0]: no protocol is set":                           "{}",
	} {
		for action, want := range map[string]string{"Allow": "", "Drop": "ingress[0] deny all", "Pass": "ingress[0] deny all"} {
			spec := "{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: " + action + ", protocols: [" + rule + "]}]}"
			policies, problems, _ := AntreaPolicy(antreaPolicyOf(t, antrea.KindClusterNetworkPolicy, spec), antreaObjects(t), nil, AntreaNamespace{}, GroupIDHash)
			if got := described(policies); !strings.HasSuffix(got, want) || (got == "") != (want == "") {
				t.Errorf("%s: %s", spec, got)
			}
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), field+"; the rule ") {
				t.Errorf("%s: %v, want %s", spec, problems, field)
			}
		}
	}
}
