package migrate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// keepsAntrea is a policy that matches nothing. With it in the input, no policy of Calico becomes a ClusterNetworkPolicy of Kubernetes.
const keepsAntrea = "---\napiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: nothing}\n" +
	"spec: {tier: Admin, priority: 500, subject: {namespaces: {}}}\n"

// outputOf returns the output for an input.
func outputOf(t *testing.T, input string) string {
	t.Helper()
	documents, err := parse([]byte(input))
	if err != nil {
		t.Fatal(err)
	}
	result, err := convert(documents, Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, input)
	}
	output, err := result.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

// dualStack returns the cluster of the tables with an IPv6 address for each pod, and a port of one name for two protocols.
func dualStack(t *testing.T, output string) *oracle.Cluster {
	c := clusterOf(t, []byte(output))
	for _, pod := range c.Pods {
		v4 := netip.MustParseAddr(pod.Status.PodIPs[0].IP).As4()
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: fmt.Sprintf("2001:db8::%x:%x", v4[2], v4[3])})
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}})
	}
	return c
}

// packetsOf returns packets between all pods, nodes and some addresses outside, at ports that the random policies name, and at others.
func packetsOf(c *oracle.Cluster) (all []oracle.Packet) {
	var addresses []netip.Addr
	for _, text := range world {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	for _, pod := range c.Pods {
		addresses = append(addresses, netip.MustParseAddr(pod.Status.PodIPs[1].IP))
	}
	addresses = append(addresses, netip.MustParseAddr("2001:db8:1::1"))
	for _, from := range addresses {
		for _, to := range addresses {
			if from == to || from.Is4() != to.Is4() {
				continue
			}
			for _, port := range []uint16{0, 53, 80, 8005, 8080, 65535} {
				all = append(all, oracle.Packet{Source: from, Destination: to, Protocol: model.TCP, Port: port})
			}
			icmp, echo := model.ICMP, uint16(8*256)
			if from.Is6() {
				icmp, echo = model.ICMPv6, 128*256
			}
			all = append(
				all, oracle.Packet{Source: from, Destination: to, Protocol: model.UDP, Port: 53},
				oracle.Packet{Source: from, Destination: to, Protocol: model.SCTP, Port: 80}, oracle.Packet{Source: from, Destination: to, Protocol: icmp, Port: echo},
			)
		}
	}
	return all
}

// TestClusterNetworkPolicies: what random policies of Calico become has the same verdicts, with ClusterNetworkPolicies of
// Kubernetes where they fit and with Antrea's kinds alone.
func TestClusterNetworkPolicies(t *testing.T) {
	const inputs, packetsEach = 200, 80
	tiers := map[string]int{}
	for seed := range uint64(inputs) {
		r := rand.New(rand.NewPCG(seed, 1))
		input := randomCalico(r)
		output := outputOf(t, input)
		for _, tier := range []string{"tier: Admin", "tier: Baseline", "apiVersion: crd.antrea.io"} {
			tiers[tier] += strings.Count(output, tier)
		}
		antreas := outputOf(t, input+keepsAntrea)
		if n := strings.Count(antreas, "policy.networking.k8s.io"); n != 1 {
			t.Fatalf("%d ClusterNetworkPolicies of Kubernetes, want the given one alone", n)
		}
		got, want := dualStack(t, output), dualStack(t, antreas)
		all := packetsOf(got)
		for range packetsEach {
			p := all[r.IntN(len(all))]
			if g, w := got.Evaluate(p), want.Evaluate(p); g.Allowed != w.Allowed {
				t.Fatalf("seed %d: %+v: %+v, with Antrea's kinds %+v\n%s\n%s", seed, p, g, w, input, output)
			}
		}
	}
	for _, kind := range []string{"tier: Admin", "tier: Baseline", "apiVersion: crd.antrea.io"} {
		if tiers[kind] < 50 {
			t.Errorf("%d policies with %q: too few are tried", tiers[kind], kind)
		}
	}
	t.Log(tiers)
}

// TestClusterNetworkPolicyLimits: what exceeds a limit of the API stays of Antrea's kind, with a note, and nothing is lost.
func TestClusterNetworkPolicyLimits(t *testing.T) {
	list := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i+1))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	policy := func(i int, egress string) string {
		return fmt.Sprintf("---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: p%d}\nspec: {order: %d, types: [Egress], egress: %s}\n", i, i, egress)
	}
	networks := func(n int) string { return "[{action: Deny, destination: {nets: " + list(n, "10.1.%d.0/24") + "}}]" }
	ports := func(n int) string {
		return "[{action: Deny, protocol: TCP, destination: {ports: " + list(n, "%d") + "}}]"
	}
	var many strings.Builder
	for i := range mostPriorities + 1 {
		many.WriteString(policy(i, "[{action: Deny, destination: {nets: [203.0.113.5]}}, {action: Allow}]"))
	}
	for _, test := range []struct {
		name, input string
		admin       int
		note        string
	}{
		{"rules", policy(0, list(25, "{action: Deny, destination: {nets: [10.1.%d.0/24]}}")), 1, ""},
		{"too many rules", policy(0, list(26, "{action: Deny, destination: {nets: [10.1.%d.0/24]}}")), 0, "at most 25 rules a direction, 25 peers and 25 ports a rule: calico-p0\n"},
		{"networks in several peers", policy(0, networks(60)), 1, ""},
		{"too many networks", policy(0, "[{action: Deny, destination: {nets: "+list(650, "2001:db8:%x::/48")+"}}]"), 0, "25 ports a rule: calico-p0 (spec.egress[0])\n"},
		{"ports", policy(0, ports(25)), 1, ""},
		{"too many ports", policy(0, ports(26)), 0, "25 ports a rule: calico-p0 (spec.egress[0])\n"},
		{"priorities", many.String(), mostPriorities, "have 1000 priorities: calico-p0, calico-p0-isolate\n"},
	} {
		out, problems, err := run(test.input, "convert", "-f", "-")
		if err != nil || strings.Contains(problems, "lost: ") {
			t.Errorf("%s: %v", test.name, err)
		}
		if n := strings.Count(out, "tier: Admin"); n != test.admin || (test.note == "") != (problems == "") || !strings.Contains(problems, test.note) {
			t.Errorf("%s: %d in the tier Admin, want %d, and a note with %q\n%.400s", test.name, n, test.admin, test.note, problems)
		}
		if test.name == "priorities" && !strings.Contains(out, "priority: 1000\n") {
			t.Errorf("%s: no policy has priority 1000", test.name)
		}
	}
}

// randomCalico returns policies of Calico of both kinds, and NetworkPolicies of Kubernetes.
func randomCalico(r *rand.Rand) string {
	one := func(all ...string) string { return all[r.IntN(len(all))] }
	simple := r.IntN(2) == 0 // most rules fit
	var out []string
	for i := range 1 + r.IntN(5) {
		global := r.IntN(4) > 0
		rules := func(egress bool) string {
			var all []string
			for range r.IntN(4) {
				peer := one("", "nets: [198.51.100.0/24]", "nets: [0.0.0.0/0]", "nets: [203.0.113.5, 192.0.2.1/32, 203.0.113.5/32, '2001:db8::/32']", "notNets: [10.0.0.0/16]",
					"selector: role == 'web'", "selector: has(role)", "selector: role == 'db' || role == 'dns'", "namespaceSelector: all()", "namespaceSelector: team == 'a'")
				protocol := one("", "", "protocol: TCP", "protocol: TCP", "protocol: UDP", "protocol: ICMP")
				ports := ""
				if protocol == "protocol: TCP" || protocol == "protocol: UDP" {
					ports = one("", "ports: [53]", "ports: [80, '8000:8010']", "ports: [http]", "ports: ['1:65535']", "ports: ['0:65535']")
				}
				if simple && r.IntN(8) > 0 {
					peer, protocol, ports = one("selector: role == 'web'", "namespaceSelector: team == 'a'"), one("", "protocol: TCP"), ""
					if egress && r.IntN(2) == 0 {
						peer = one("", "nets: [198.51.100.0/24]", "nets: [0.0.0.0/0]")
					}
					if protocol != "" {
						ports = one("ports: [53]", "ports: [80, '8000:8010']", "ports: ['1:65535']")
					}
				}
				join := func(parts ...string) string {
					return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
				}
				source, destination := "source: {"+peer+"}", "destination: {"+ports+"}"
				if egress {
					source, destination = "", "destination: {"+join(peer, ports)+"}"
				}
				all = append(all, "{"+join("action: "+one("Allow", "Allow", "Deny", "Pass"), protocol, source, destination)+"}")
			}
			return "[" + strings.Join(all, ", ") + "]"
		}
		head := "kind: GlobalNetworkPolicy\nmetadata: {name: p%d}\n"
		if !global {
			head = "kind: NetworkPolicy\nmetadata: {name: p%d, namespace: " + one("shop", "other") + "}\n"
		}
		spec := fmt.Sprintf("  order: %d\n  selector: %s\n", 10*r.IntN(8)+i, one("all()", "role == 'web'", "role in {'db', 'api'}", "role != 'dns'", "role == 'db' || role == 'web'"))
		if r.IntN(5) == 0 {
			spec = strings.Replace(spec, "order: ", "order: 10", 1) // most are above 1000
		}
		types := one("Egress", "Egress", "Ingress", "Ingress, Egress")
		spec += "  types: [" + types + "]\n"
		if strings.Contains(types, "Ingress") {
			spec += "  ingress: " + rules(false) + "\n"
		}
		if strings.Contains(types, "Egress") {
			spec += "  egress: " + rules(true) + "\n"
		}
		if global && r.IntN(3) == 0 {
			spec += "  namespaceSelector: " + one("team == 'a'", "team != 'b'") + "\n"
		}
		out = append(out, "apiVersion: projectcalico.org/v3\n"+fmt.Sprintf(head, i)+"spec:\n"+spec)
	}
	for i := range r.IntN(3) {
		out = append(out, fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: k%d, namespace: %s}\nspec: {podSelector: {matchLabels: {role: %s}}, policyTypes: [%s], ingress: [%s]}\n",
			i, one("shop", "other"), one("web", "db"), one("Ingress", "Ingress, Egress"), one("", "{from: [{podSelector: {}}]}", "{ports: [{port: 80}]}")))
	}
	return strings.Join(out, "---\n")
}
