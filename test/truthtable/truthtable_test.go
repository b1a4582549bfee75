package truthtable_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

func readSample(t *testing.T) []truthtable.Step {
	t.Helper()
	steps, err := truthtable.ReadFile("testdata/sample.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func TestReadSample(t *testing.T) {
	steps := readSample(t)
	if len(steps) != 21 {
		t.Fatalf("read %d steps, want 21", len(steps))
	}
	s := steps[0]
	if s.String() != "engine/a01/1" || len(s.Nodes) != 2 || len(s.Pods) != 9 || len(s.Policies) != 1 || len(s.Probes) != 486 {
		t.Errorf("first step is %s with %d nodes, %d pods, %d policies, %d probes", s.String(), len(s.Nodes), len(s.Pods), len(s.Policies), len(s.Probes))
	}
}

func TestObjectsAreDualStack(t *testing.T) {
	for _, s := range readSample(t) {
		if s.Case != "a04" {
			continue
		}
		v4, v6 := s.Objects(model.IPv4), s.Objects(model.IPv6)
		var ips []string
		for _, ip := range v6.Pods[0].Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		if diff := cmp.Diff([]string{"10.10.0.10", "fd00:10::a0a:a"}, ips); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"10.10.0.0/24", "fd00:10::a0a:0/120"}, v6.Nodes[0].Spec.PodCIDRs); diff != "" {
			t.Error(diff)
		}
		block4, block6 := v4.Policies[0].Spec.Egress[0].To[0].IPBlock.CIDR, v6.Policies[0].Spec.Egress[0].To[0].IPBlock.CIDR
		p := netip.MustParsePrefix(block4)
		if want := truthtable.MapPrefix(p, model.IPv6).String(); block6 != want || !strings.HasPrefix(block6, "fd00:10::") {
			t.Errorf("ipBlock %s became %s, want %s", block4, block6, want)
		}
		mapped := s.MapFamily(model.IPv6)
		if got := mapped.Policies[0].Spec.Egress[0].To[0].IPBlock.CIDR; got != block6 {
			t.Errorf("MapFamily: ipBlock %s, want %s", got, block6)
		}
		if got := s.Policies[0].Spec.Egress[0].To[0].IPBlock.CIDR; got != block4 {
			t.Errorf("MapFamily changed the original to %s", got)
		}
		return
	}
	t.Fatal("no case a04")
}

func TestMapPrefixKeepsEverything(t *testing.T) {
	if got := truthtable.MapPrefix(netip.MustParsePrefix("0.0.0.0/0"), model.IPv6); got.String() != "::/0" {
		t.Errorf("0.0.0.0/0 became %s", got)
	}
}

const stepLine = `{"suite":"s","case":"c","step":1,"steps":1,` +
	`"nodes":[{"name":"n","ip":"192.0.2.1","podCIDR":"10.0.0.0/24"}],"namespaces":[{"name":"x"}],` +
	`"pods":[{"ns":"x","name":"a","ip":"10.0.0.9","node":"n"}],"policies":[],"probes":[PROBE]}`

func TestProbeEnds(t *testing.T) {
	line := strings.Replace(stepLine, "PROBE", `{"from":"node:n","to":"ip:198.51.100.7","proto":"TCP","port":80}`, 1)
	steps, err := truthtable.Read(strings.NewReader("\n" + line))
	if err != nil {
		t.Fatal(err)
	}
	if steps[0].Probes[0].Expect != nil {
		t.Error("an absent expect is not nil")
	}
	for end, want := range map[string]string{"x/a": "fd00:10::a00:9", "node:n": "fd00:10::c000:201", "ip:198.51.100.7": "fd00:10::c633:6407"} {
		got, err := steps[0].Address(end, model.IPv6)
		if err != nil || got.String() != want {
			t.Errorf("Address(%q) = %v, %v; want %s", end, got, err, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, probe := range map[string]string{
		"unknown pod":      `{"from":"x/a","to":"x/b","proto":"TCP","port":80}`,
		"unknown node":     `{"from":"x/a","to":"node:m","proto":"TCP","port":80}`,
		"bad address":      `{"from":"x/a","to":"ip:1.2.3","proto":"TCP","port":80}`,
		"unknown protocol": `{"from":"x/a","to":"x/a","proto":"tcp","port":80}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := truthtable.Read(strings.NewReader(strings.Replace(stepLine, "PROBE", probe, 1))); err == nil {
				t.Error("no error")
			}
		})
	}
}

// TestReadRefusesOtherPolicies: a policy of another kind than its list is not taken for an empty one.
func TestReadRefusesOtherPolicies(t *testing.T) {
	const probe = `{"from":"x/a","to":"x/a","proto":"TCP","port":80}`
	const cluster = `{"apiVersion":"policy.networking.k8s.io/v1alpha2",KIND"metadata":{"name":"p"},"spec":{"tier":"Admin","priority":1,"subject":{"namespaces":{}}}}`
	const policy = `{KIND"metadata":{"name":"p","namespace":"x"},"spec":{"podSelector":{}}}`
	for _, c := range []struct{ name, list, text, want string }{
		{"a ClusterNetworkPolicy", "policies", strings.Replace(cluster, "KIND", `"kind":"ClusterNetworkPolicy",`, 1), "policies[0] is a ClusterNetworkPolicy, want a NetworkPolicy"},
		{"without its kind", "policies", strings.Replace(cluster, "KIND", "", 1), `unknown field "tier"`},
		{"a NetworkPolicy", "clusterPolicies", strings.Replace(policy, "KIND", `"kind":"NetworkPolicy",`, 1), "clusterPolicies[0] is a NetworkPolicy"},
		{"right", "policies", strings.Replace(policy, "KIND", "", 1), ""},
		{"right, of a cluster", "clusterPolicies", strings.Replace(cluster, "KIND", `"kind":"ClusterNetworkPolicy",`, 1), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			line := strings.Replace(stepLine, "PROBE", probe, 1)
			line = strings.Replace(line, `"policies":[]`, `"`+c.list+`":[`+c.text+`]`, 1)
			_, err := truthtable.Read(strings.NewReader(line))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
