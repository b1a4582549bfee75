package oracle_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// cluster has pods x/a and x/b on node n1, x/c on n2, all isolated in both
// directions by x/closed, and a pod x/host in the network of n2.
func cluster(t *testing.T, specs ...string) *oracle.Cluster {
	c := &oracle.Cluster{Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "x"}}}}
	for name, n := range map[string][2]string{"n1": {"192.0.2.1", "10.0.1.0/24"}, "n2": {"192.0.2.2", "10.0.2.0/24"}} {
		c.Nodes = append(c.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.NodeSpec{PodCIDR: n[1], PodCIDRs: []string{n[1]}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n[0]}}},
		})
	}
	for name, p := range map[string][2]string{"a": {"n1", "10.0.1.10"}, "b": {"n1", "10.0.1.11"}, "c": {"n2", "10.0.2.10"}, "host": {"n2", "192.0.2.2"}} {
		c.Pods = append(c.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, Labels: map[string]string{"pod": name}},
			Spec: corev1.PodSpec{NodeName: p[0], HostNetwork: name == "host", Containers: []corev1.Container{{
				Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
			}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: p[1]}}},
		})
	}
	for i, spec := range append([]string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`}, specs...) {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: []string{"closed", "open"}[i]}}
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			t.Fatal(err)
		}
		c.Policies = append(c.Policies, p)
	}
	return c
}

// TestDecisions checks the grounds that the oracle gives.
func TestDecisions(t *testing.T) {
	const open = `{podSelector: {matchLabels: {pod: c}}, policyTypes: [Ingress, Egress],
		ingress: [{from: [{ipBlock: {cidr: 192.0.2.1/32}}]}, {from: [{podSelector: {}}]}], egress: [{ports: [{port: web}]}]}`
	const a, b, c, n1, n2, gateway1, gateway2 = "10.0.1.10", "10.0.1.11", "10.0.2.10", "192.0.2.1", "192.0.2.2", "10.0.1.1", "10.0.2.1"
	for name, test := range map[string]struct {
		from, to        string
		port            uint16
		egress, ingress oracle.Why
	}{
		"itself":              {a, a, 80, oracle.Self, oracle.Self},
		"own node":            {n1, a, 80, oracle.OwnNode, oracle.OwnNode},
		"to own node":         {a, n1, 80, oracle.OwnNode, oracle.OwnNode},
		"own gateway":         {gateway1, a, 80, oracle.OwnNode, oracle.OwnNode},
		"hostNetwork pod":     {n2, c, 80, oracle.OwnNode, oracle.OwnNode},
		"other node":          {n2, a, 80, oracle.NotAPod, oracle.Isolated},
		"other node by block": {n1, c, 80, oracle.NotAPod, oracle.RuleAllows},
		"other gateway":       {gateway2, a, 80, oracle.NotAPod, oracle.Isolated},
		"to other node":       {a, n2, 80, oracle.Isolated, oracle.NotAPod},
		"same node":           {a, b, 80, oracle.Isolated, oracle.Isolated},
		"one side open":       {a, c, 80, oracle.Isolated, oracle.RuleAllows},
		"port by name":        {c, a, 8080, oracle.RuleAllows, oracle.Isolated},
		"other port":          {c, a, 80, oracle.Isolated, oracle.Isolated},
		"name on the outside": {c, "203.0.113.1", 8080, oracle.Isolated, oracle.NotAPod},
		"name on a host":      {c, n1, 8080, oracle.Isolated, oracle.NotAPod},
	} {
		t.Run(name, func(t *testing.T) {
			p := oracle.Packet{Source: netip.MustParseAddr(test.from), Destination: netip.MustParseAddr(test.to), Protocol: model.TCP, Port: test.port}
			v := cluster(t, open).Evaluate(p)
			if v.Egress.Why != test.egress || v.Ingress.Why != test.ingress {
				t.Errorf("%s: %+v", p, v)
			}
		})
	}
}

// TestDecisionNamesPolicies checks the policies and rules that a decision names.
func TestDecisionNamesPolicies(t *testing.T) {
	c := cluster(t, `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.9.0.0/16}}]}, {}]}`)
	v := c.Evaluate(oracle.Packet{Source: netip.MustParseAddr("203.0.113.1"), Destination: netip.MustParseAddr("10.0.1.10"), Protocol: model.ICMP})
	in := v.Ingress
	if !v.Allowed || in.Policy.String() != "networkpolicy/x/open" || in.Rule != "ingress[1]" || len(in.Isolating) != 2 || in.Isolating[0].Name != "closed" {
		t.Errorf("%+v", v)
	}
	closed := cluster(t)
	v = closed.Evaluate(oracle.Packet{Source: netip.MustParseAddr("203.0.113.1"), Destination: netip.MustParseAddr("10.0.1.10"), Protocol: model.TCP, Port: 80})
	if v.Allowed || len(v.Ingress.Isolating) != 1 || v.Ingress.Rule != "" {
		t.Errorf("%+v", v)
	}
}

// TestTunnelEnds: no policy allows packets of pods to a node's end of the tunnel.
func TestTunnelEnds(t *testing.T) {
	c := cluster(t, `{podSelector: {}, ingress: [{}], egress: [{}], policyTypes: [Ingress, Egress]}`)
	const a, b, n1, n2, gateway2, outside = "10.0.1.10", "10.0.1.11", "192.0.2.1", "192.0.2.2", "10.0.2.1", "203.0.113.1"
	for _, test := range []struct {
		from, to string
		protocol model.Protocol
		port     uint16
		allowed  bool
	}{
		{a, n1, model.UDP, 6081, false},
		{a, n1, model.UDP, 4789, false},
		{a, n1, model.GRE, 0, false},
		{a, n2, model.UDP, 6081, false},
		{a, gateway2, model.UDP, 4789, false},
		{a, gateway2, model.GRE, 0, false},
		{a, n1, model.TCP, 6081, true},
		{a, n2, model.UDP, 6082, true},
		{a, b, model.UDP, 6081, true},
		{a, outside, model.UDP, 4789, true},
		{a, outside, model.GRE, 0, true},
		{n2, n1, model.UDP, 6081, true},
	} {
		p := oracle.Packet{Source: netip.MustParseAddr(test.from), Destination: netip.MustParseAddr(test.to), Protocol: test.protocol, Port: test.port}
		v := c.Evaluate(p)
		if v.Allowed != test.allowed || !test.allowed && v.Egress.Why != oracle.TunnelEnd {
			t.Errorf("%s: %+v", p, v)
		}
	}
}
