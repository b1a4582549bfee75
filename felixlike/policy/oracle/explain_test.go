package oracle_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestExplainAgrees: an explanation has the verdict of Evaluate, and allows by a rule
// exactly where the verdict is due to a rule of a NetworkPolicy.
func TestExplainAgrees(t *testing.T) {
	for _, s := range tables(t, "../../../test/truthtable/testdata/*.jsonl") {
		o := s.Objects(model.IPv4)
		cluster := oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies, Antrea: o.Antrea}
		c := &cluster
		for _, probe := range s.Probes {
			agrees(t, s, c, probe)
		}
	}
}

func agrees(t *testing.T, s truthtable.Step, c *oracle.Cluster, probe truthtable.Probe) {
	t.Helper()
	p := oracle.Packet{Port: probe.Port, Source: address(t, s, probe.From, model.IPv4), Destination: address(t, s, probe.To, model.IPv4)}
	var err error
	if p.Protocol, err = model.ParseProtocol(probe.Protocol); err != nil {
		t.Fatal(err)
	}
	e := c.Explain(p)
	if diff := cmp.Diff(c.Evaluate(p), e.Verdict); diff != "" {
		t.Errorf("%s: %s", p, diff)
	}
	for _, end := range []struct {
		decision oracle.Decision
		asked    []oracle.Asked
	}{{e.Egress, e.EgressRules}, {e.Ingress, e.IngressRules}} {
		allows := false
		for _, a := range end.asked {
			allows = allows || a.Allows
			if a.Because == "" {
				t.Errorf("%s: %s %s says nothing", p, a.Policy, a.Rule)
			}
		}
		rule := end.decision.Why == oracle.RuleAllows && end.decision.Policy.Tier == model.TierNetworkPolicy
		if allows != rule || (len(end.asked) > 0) != (len(end.decision.Isolating) > 0) {
			t.Errorf("%s: %+v, but %+v", p, end.decision, end.asked)
		}
	}
}

func TestExplainInWords(t *testing.T) {
	c := cluster(t, `
podSelector: {}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: nobody}}}, {ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.9/32]}}]
  ports: [{port: 80}, {port: 90, endPort: 99, protocol: UDP}]
- ports: [{port: http}]`)
	e := c.Explain(oracle.Packet{
		Source: netip.MustParseAddr("10.0.1.10"), Destination: netip.MustParseAddr("10.0.2.10"), Protocol: model.TCP, Port: 81,
	})
	var got []string
	for _, a := range e.IngressRules {
		got = append(got, a.Policy.String()+" "+a.Rule+": "+a.Because)
	}
	want := []string{
		"networkpolicy/x/closed : it has no ingress rules, so it isolates and allows nothing",
		"networkpolicy/x/open ingress[0]: x/a is not in from (pods app=nobody, or addresses 192.0.2.0/24 except 192.0.2.9/32), tcp/81 is not in ports (tcp/80, udp/90-99)",
		"networkpolicy/x/open ingress[1]: any peer, tcp/81 is not in ports (tcp/http)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
