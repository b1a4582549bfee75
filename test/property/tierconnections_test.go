package property

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// connect is a TCP connection between pods, and whether it is allowed.
type connect struct {
	from, to string
	port     uint16
	allowed  bool
}

// packets returns the packets that open the connection, one a family.
func (c connect) packets() []oracle.Packet {
	var all []oracle.Packet
	pods := tierPods()
	for i := range pods[c.from].Status.PodIPs {
		all = append(all, oracle.Packet{
			Source:      netip.MustParseAddr(pods[c.from].Status.PodIPs[i].IP),
			Destination: netip.MustParseAddr(pods[c.to].Status.PodIPs[i].IP),
			Protocol:    model.TCP, Port: c.port,
		})
	}
	return all
}

// lead leads both nodes to the cluster. Nothing may be refused.
func (b *testbed) lead(t *testing.T, c *oracle.Cluster) {
	t.Helper()
	before := b.cluster
	b.cluster = c
	for _, name := range b.names() {
		d := b.sites[name].plane()
		d.become(before, c)
		d.program(t)
	}
}

// opened returns new connections. The oracle has to agree with the expectation.
func (b *testbed) opened(t *testing.T, wanted ...connect) []connection {
	t.Helper()
	var all []connection
	for _, w := range wanted {
		for _, p := range w.packets() {
			if v := b.cluster.Evaluate(p); v.Allowed != w.allowed {
				t.Errorf("%s to %s, port %d: the oracle says %+v, wanted %t", w.from, w.to, w.port, v, w.allowed)
			}
			all = append(all, b.connections([]oracle.Packet{p})...)
		}
	}
	return all
}

// TestBothEndsOfAConnection has a port for each pair of tiers' actions at the two ends.
// A connection needs both ends.
func TestBothEndsOfAConnection(t *testing.T) {
	ends := []struct {
		action v1alpha2.ClusterNetworkPolicyRuleAction
		// allowed reports that the end allows it, behind a Pass by a NetworkPolicy.
		allowed bool
	}{
		{v1alpha2.ClusterNetworkPolicyRuleActionAccept, true},
		{v1alpha2.ClusterNetworkPolicyRuleActionDeny, false},
		{v1alpha2.ClusterNetworkPolicyRuleActionPass, true},
		{v1alpha2.ClusterNetworkPolicyRuleActionPass, false},
	}
	const first = 1000
	// protocols are the ports of an end, for rules of the two kinds of policy.
	protocols := func(ports []int) (cluster, network string) {
		var c, n []string
		for _, p := range ports {
			c, n = append(c, fmt.Sprintf("{tcp: {destinationPort: {number: %d}}}", p)), append(n, fmt.Sprintf("{port: %d}", p))
		}
		return "[" + strings.Join(c, ", ") + "]", "[" + strings.Join(n, ", ") + "]"
	}
	var egress, ingress []string
	var egressPorts, ingressPorts string
	var wanted []connect
	for i, end := range ends {
		var out, in []int
		for j, other := range ends {
			out, in = append(out, first+len(ends)*i+j), append(in, first+len(ends)*j+i)
			for _, to := range []string{"db", "api"} {
				wanted = append(wanted, connect{"web", to, uint16(first + len(ends)*i + j), end.allowed && other.allowed})
			}
		}
		toPorts, toNetworkPorts := protocols(out)
		fromPorts, fromNetworkPorts := protocols(in)
		egress = append(egress, fmt.Sprintf("{action: %s, to: %s, protocols: %s}", end.action, everybody, toPorts))
		ingress = append(ingress, fmt.Sprintf("{action: %s, from: %s, protocols: %s}", end.action, everybody, fromPorts))
		if end.action == v1alpha2.ClusterNetworkPolicyRuleActionPass && end.allowed {
			egressPorts, ingressPorts = toNetworkPorts, fromNetworkPorts
		}
	}
	policies := []string{
		cnp("out", "Admin", 1, "web", "egress: ["+strings.Join(egress, ", ")+"]"),
		"{metadata: {namespace: shop, name: out}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: " + egressPorts + "}]}}",
	}
	for _, to := range []string{"db", "api"} {
		policies = append(
			policies, cnp("in-"+to, "Admin", 1, to, "ingress: ["+strings.Join(ingress, ", ")+"]"),
			"{metadata: {namespace: shop, name: in-"+to+"}, spec: {podSelector: {matchLabels: {app: "+to+"}}, ingress: [{ports: "+ingressPorts+"}]}}",
		)
	}
	eachBackend(t, func(t *testing.T, b *testbed) {
		b.lead(t, tierCluster(t, policies...))
		b.judgeNew(t, b.opened(t, wanted...))
		t.Logf("%d connections, %d hops through, %d blocked", 2*len(wanted), b.verdicts[true], b.verdicts[false])
	})
}

// TestAdminDenyAndConnections: an admin Deny treats packets that look established as a
// NetworkPolicy does. It drops those of no connection, and keeps the connections that
// were allowed before it came, with their answers.
func TestAdminDenyAndConnections(t *testing.T) {
	never := func(hop) bool { return false }
	eachBackend(t, func(t *testing.T, b *testbed) {
		for _, closing := range []string{
			cnp("closed", "Admin", 1, "db", "ingress: ["+denyAll+"], egress: [{action: Deny, to: "+everybody+"}]"),
			"{metadata: {namespace: shop, name: closed}, spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress]}}",
		} {
			b.lead(t, tierCluster(t))
			kept := b.opened(t, connect{"web", "db", 80, true}, connect{"db", "mon", 80, true})
			b.judgeNew(t, kept)
			b.lead(t, tierCluster(t, closing))
			for range 2 {
				b.send(t, "next packet of a connection from before", kept, more, always)
				b.send(t, "answer of a connection from before", kept, back, always)
			}
			denied := b.opened(t, connect{"web", "db", 80, false}, connect{"db", "web", 80, false})
			b.send(t, "ACK of no connection", denied, more, never)
			b.send(t, "SYN and ACK of no connection", denied, back, never)
			b.send(t, "opening", denied, there, never)
		}
		// Only answers go from db to web.
		b.lead(t, tierCluster(
			t, cnp("out", "Admin", 1, "db", "egress: [{action: Deny, to: "+everybody+"}]"),
			cnp("in", "Admin", 1, "web", "ingress: [{action: Deny, from: "+app("db")+"}]"),
		))
		b.judgeNew(t, b.opened(t, connect{"web", "db", 80, true}, connect{"db", "web", 80, false}))
	})
}
