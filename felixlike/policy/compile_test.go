package policy_test

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// TestRules compiles specs and compares the rules and the isolated directions.
func TestRules(t *testing.T) {
	const in, out, both = "in", "out", "in out"
	for name, c := range map[string]struct{ spec, isolates, ingress, egress string }{
		"nothing but a selector isolates ingress": {`podSelector: {}`, in, "", ""},
		"egress rules isolate egress too":         {`{podSelector: {}, egress: [{}]}`, both, "", "egress[0] | any | any"},
		"an empty egress section does not":        {`{podSelector: {}, egress: []}`, in, "", ""},
		"policyTypes say it":                      {`{podSelector: {}, policyTypes: [Egress], ingress: [{}]}`, out, "", ""},
		"one empty rule allows everything":        {`{podSelector: {}, ingress: [{}]}`, in, "ingress[0] | any | any", ""},
		"empty lists are as good as none":         {`{podSelector: {}, ingress: [{from: [], ports: []}]}`, in, "ingress[0] | any | any", ""},
		"the four kinds of selector peers": {
			`{podSelector: {}, ingress: [{from: [{podSelector: {}}, {podSelector: {matchLabels: {a: b}}},
			 {namespaceSelector: {}}, {namespaceSelector: {matchLabels: {c: d}}, podSelector: {matchLabels: {a: b}}}]}]}`,
			in, "ingress[0] | all pods in namespace x; pods a=b in namespace x; all pods in all namespaces; pods a=b in namespaces c=d | any", "",
		},
		"expressions": {
			`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {z: w}, matchExpressions: [
			 {key: b, operator: NotIn, values: [q, p, q]}, {key: a, operator: In, values: [o, m]}, {key: c, operator: Exists}, {key: d, operator: DoesNotExist}]}}]}]}`,
			in, "ingress[0] | pods a in (m,o),b notin (p,q),c,!d,z=w in namespace x | any", "",
		},
		"one selector in other words": {
			`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {a: b}}}, {podSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}}]}]}`,
			in, "ingress[0] | pods a=b in namespace x | any", "",
		},
		"blocks of a rule are one group": {
			`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8:1::/48"]}}]}]}`,
			in, "ingress[0] | 10.0.0.0/8 except 10.1.0.0/16, 2001:db8::/32 except 2001:db8:1::/48 | any", "",
		},
		"one prefix of a family is a group": {
			`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {ipBlock: {cidr: "2001:db8::/32"}}]}, {from: [
				{ipBlock: {cidr: 192.0.2.0/25}}, {ipBlock: {cidr: 192.0.2.128/25}}, {ipBlock: {cidr: "::/0"}}]}]}`,
			in, "ingress[0] | 2001:db8::/32; 10.0.0.0/8 except 10.1.0.0/16 | any\ningress[1] | 192.0.2.0/24; ::/0 | any", "",
		},
		"ports": {
			`{podSelector: {}, ingress: [{ports: [{port: 80}, {port: 81, protocol: UDP}, {port: 90, endPort: 99, protocol: SCTP}, {protocol: UDP}, {port: 85, endPort: 89, protocol: SCTP}]}]}`,
			in, "ingress[0] | any | [tcp/80 udp sctp/85-99]", "",
		},
		"ports that touch are one range":     {`{podSelector: {}, ingress: [{ports: [{port: 80}, {port: 82}, {port: 84}, {port: 83}]}]}`, in, "ingress[0] | any | [tcp/80 tcp/82-84]", ""},
		"a port without anything is TCP":     {`{podSelector: {}, ingress: [{ports: [{}]}]}`, in, "ingress[0] | any | [tcp]", ""},
		"named ports of ingress are our own": {`{podSelector: {matchLabels: {a: b}}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: web}, {port: 80}]}]}`, in, "ingress[0] | all pods in all namespaces | [tcp/80] port tcp/web of pods a=b in namespace x", ""},
		"named ports of egress to anybody":   {`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: web}, {port: 80}]}]}`, out, "", "egress[0] | any | [tcp/80] port tcp/web of all pods in all namespaces"},
		"named ports of egress to a block": {
			`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: web}, {port: 80}]}]}`,
			out, "", "egress[0] | 10.0.0.0/8 | [tcp/80] port tcp/web of all pods in all namespaces",
		},
		"named ports of egress to selectors and a block": {
			`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}, {namespaceSelector: {}}], ports: [{port: web, protocol: UDP}, {port: 80}]}]}`,
			out, "", `egress[0] | all pods in namespace x; all pods in all namespaces; 10.0.0.0/8 | [tcp/80]
egress[0] | 10.0.0.0/8 | [] port udp/web of all pods in all namespaces
egress[0] | any | [] port udp/web of all pods in namespace x
egress[0] | any | [] port udp/web of all pods in all namespaces`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t)
			s.SetNamespace(newNamespace("x"))
			s.SetPod(newPod("x/a a=b", "10.0.0.1"))
			if problems := s.SetNetworkPolicy(networkPolicy(t, c.spec)); len(problems) > 0 {
				t.Errorf("problems: %v", problems)
			}
			s.flush()
			equal(t, "ingress", s.rules(model.Ingress), c.ingress)
			equal(t, "egress", s.rules(model.Egress), c.egress)
			equal(t, "isolates", s.isolates("a"), c.isolates)
		})
	}
}

// isolates returns the directions in which the pod x/NAME is isolated.
func (s *state) isolates(name string) string {
	var words []string
	e := s.model.Endpoints[model.PodID{Namespace: "x", Name: name}]
	if e == nil {
		return "no endpoint"
	}
	if e.Ingress.Isolated() {
		words = append(words, "in")
	}
	if e.Egress.Isolated() {
		words = append(words, "out")
	}
	return strings.Join(words, " ")
}

// TestFailsClosed: each kind of mistake is reported with its field, the invalid part matches
// nothing, the valid parts apply, and the pods are isolated.
func TestFailsClosed(t *testing.T) {
	const beside = "ingress[0] | 192.0.2.0/24 | any"
	peer := func(p string) string {
		return `{podSelector: {}, ingress: [{from: [` + p + `, {ipBlock: {cidr: 192.0.2.0/24}}]}]}`
	}
	port := func(p string) string { return `{podSelector: {}, ingress: [{ports: [` + p + `, {port: 443}]}]}` }
	const from, ports = "spec.ingress[0].from[0]", "spec.ingress[0].ports[0]"
	for name, c := range map[string]struct{ spec, field, ingress, isolates string }{
		"bad cidr":               {peer(`{ipBlock: {cidr: 10.0.0.0}}`), from + ".ipBlock.cidr", beside, "in"},
		"no cidr":                {peer(`{ipBlock: {cidr: ""}}`), from + ".ipBlock.cidr", beside, "in"},
		"mapped cidr":            {peer(`{ipBlock: {cidr: "::ffff:10.0.0.0/104"}}`), from + ".ipBlock.cidr", beside, "in"},
		"bad except":             {peer(`{ipBlock: {cidr: 10.0.0.0/8, except: [x]}}`), from + ".ipBlock.except[0]", beside, "in"},
		"except outside":         {peer(`{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}`), from + ".ipBlock.except[0]", beside, "in"},
		"except of the family":   {peer(`{ipBlock: {cidr: 10.0.0.0/8, except: ["fd00::/16"]}}`), from + ".ipBlock.except[0]", beside, "in"},
		"except of everything":   {peer(`{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}`), from + ".ipBlock.except[0]", beside, "in"},
		"block and selector":     {peer(`{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}`), from, beside, "in"},
		"empty peer":             {peer(`{}`), from, beside, "in"},
		"unknown operator":       {peer(`{podSelector: {matchExpressions: [{key: a, operator: Near, values: [b]}]}}`), from + ".podSelector.matchExpressions[0].operator", beside, "in"},
		"operator without value": {peer(`{podSelector: {matchExpressions: [{key: a, operator: NotIn}]}}`), from + ".podSelector.matchExpressions[0].values", beside, "in"},
		"bad value":              {peer(`{namespaceSelector: {matchExpressions: [{key: a, operator: NotIn, values: ["-"]}]}}`), from + ".namespaceSelector.matchExpressions[0].values[0]", beside, "in"},
		"bad label":              {peer(`{podSelector: {matchLabels: {a: "b c"}}}`), from + ".podSelector.matchLabels", beside, "in"},
		"bad key":                {peer(`{podSelector: {matchExpressions: [{key: "a b", operator: Exists}]}}`), from + ".podSelector.matchExpressions[0].key", beside, "in"},
		"unknown protocol":       {port(`{protocol: ICMP}`), ports + ".protocol", "ingress[0] | any | [tcp/443]", "in"},
		"port 0":                 {port(`{port: 0}`), ports + ".port", "ingress[0] | any | [tcp/443]", "in"},
		"port too great":         {port(`{port: 65536}`), ports + ".port", "ingress[0] | any | [tcp/443]", "in"},
		"endPort below port":     {port(`{port: 80, endPort: 79}`), ports + ".endPort", "ingress[0] | any | [tcp/443]", "in"},
		"endPort too great":      {port(`{port: 80, endPort: 65536}`), ports + ".endPort", "ingress[0] | any | [tcp/443]", "in"},
		"endPort without port":   {port(`{endPort: 80}`), ports + ".endPort", "ingress[0] | any | [tcp/443]", "in"},
		"endPort with a name":    {port(`{port: web, endPort: 80}`), ports + ".endPort", "ingress[0] | any | [tcp/443]", "in"},
		"bad port name":          {port(`{port: "80"}`), ports + ".port", "ingress[0] | any | [tcp/443]", "in"},
		"only a bad peer":        {`{podSelector: {}, ingress: [{from: [{}]}]}`, from, "", "in"},
		"only a bad port":        {`{podSelector: {}, ingress: [{ports: [{port: 0}]}]}`, ports + ".port", "", "in"},
		"unknown type":           {`{podSelector: {}, policyTypes: [ingress], ingress: [{}]}`, "spec.policyTypes[0]", "", "in out"},
		"unknown type beside":    {`{podSelector: {}, policyTypes: [Ingress, Sideways], ingress: [{}]}`, "spec.policyTypes[1]", "ingress[0] | any | any", "in out"},
		"bad podSelector":        {`{podSelector: {matchLabels: {a: "b c"}}, ingress: [{}]}`, "spec.podSelector.matchLabels", "", "in"},
		"bad rule not in force":  {`{podSelector: {}, policyTypes: [Egress], ingress: [{ports: [{port: 0}]}]}`, ports + ".port", "", "out"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t)
			s.SetNamespace(newNamespace("x"))
			s.SetPod(newPod("x/a", "10.0.0.1"))
			problems := s.SetNetworkPolicy(networkPolicy(t, c.spec))
			if len(problems) != 1 {
				t.Fatalf("problems: %v, want one", problems)
			}
			p := problems[0]
			equal(t, "object", p.Object.String(), "networkpolicy/x/p")
			equal(t, "field", p.Field, c.field)
			if p.Reason == "" {
				t.Error("no reason")
			}
			s.flush()
			equal(t, "ingress", s.rules(model.Ingress), c.ingress)
			equal(t, "isolates", s.isolates("a"), c.isolates)
		})
	}
}

// TestExceptionsAreMembers: an exception is a member, and affects its own block only.
func TestExceptionsAreMembers(t *testing.T) {
	s := newState(t)
	s.SetPod(newPod("x/a", "10.0.0.1"))
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{from: [
		{ipBlock: {cidr: 10.0.0.0/30, except: [10.0.0.1/32]}}, {ipBlock: {cidr: 10.0.0.2/31}}, {ipBlock: {cidr: "fd00::/126", except: ["fd00::2/127"]}}]},
		{from: [{ipBlock: {cidr: 10.0.0.0/31, except: [10.0.0.0/32]}}, {ipBlock: {cidr: 10.0.0.0/32}}]}]}`))
	equal(t, "updates", s.flush(), `
group "10.0.0.0/31" +[10.0.0.0/31] -[]
group "10.0.0.0/30 except 10.0.0.1/32, 10.0.0.2/31, fd00::/126 except fd00::2/127" +[10.0.0.0/30 10.0.0.1 nomatch fd00::/126 fd00::2/127 nomatch] -[]
policy networkpolicy/x/p 2 ingress 0 egress
endpoint x/a ingress [networkpolicy/x/p] egress []`)
}
