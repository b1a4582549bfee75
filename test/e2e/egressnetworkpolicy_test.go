package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// egressPolicy is an EgressNetworkPolicy with rules such as "Allow 192.0.2.0/24".
func egressPolicy(namespace, name string, rules ...string) string {
	var all []string
	for _, r := range rules {
		kind, cidr, _ := strings.Cut(r, " ")
		all = append(all, fmt.Sprintf("{type: %s, to: {cidrSelector: '%s'}}", kind, cidr))
	}
	return fmt.Sprintf("---\n{apiVersion: network.openshift.io/v1, kind: EgressNetworkPolicy, metadata: {namespace: %s, name: %s}, spec: {egress: [%s]}}\n", namespace, name, strings.Join(all, ", "))
}

// TestEgressNetworkPolicy sends packets out of the cluster: the first rule decides, node addresses count as outside, and pods are no
// matter of it. No packet of an old connection arrives after the change. Two objects, and a join, deny all.
func TestEgressNetworkPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []lab.Config{{Backend: config.NFTables}, {Backend: config.NFTables, NFTablesLayout: config.LayoutMaps}, {Backend: config.IPTablesNFT}, {Backend: config.OpenFlow}} {
		t.Run(strings.TrimSpace(c.Backend+" "+c.NFTablesLayout), func(t *testing.T) {
			t.Parallel()
			c.Isolation, c.ExistingConnections = config.IsolationNamespaces, config.Revalidate
			egressNetworkPolicy(t, newLabWith(t, c))
		})
	}
}

func egressNetworkPolicy(t *testing.T, l *lab.Lab) {
	t.Helper()
	const twoNodes = "{kind: Node, metadata: {name: node1}}\n---\n{kind: Node, metadata: {name: node2}}\n"
	with := func(loner int, policies ...string) {
		t.Helper()
		set(t, l, state(t, twoNodes, project("x", 7)+project("loner", loner)+strings.Join(policies, "")))
	}
	with(-1)
	allowed, denied := map[model.Family]*outsideHost{}, map[model.Family]*outsideHost{}
	var rules []string
	for _, f := range model.Families() {
		allowed[f], denied[f] = newOutsideHost(t, l, "203.0.113.9", f), newOutsideHost(t, l, "203.0.113.10", f)
		bits := allowed[f].addr.Addr().BitLen()
		rules = append(rules, fmt.Sprintf("Allow %s/%d", allowed[f].addr.Addr(), bits), fmt.Sprintf("Allow %s/%d", l.Node("node2").Address(f), bits))
	}
	rules = append(rules, "Deny 0.0.0.0/0", "Deny ::/0", "Allow 0.0.0.0/0", "Allow ::/0")
	leaves := func(what string, want bool, from string, hosts map[model.Family]*outsideHost) {
		t.Helper()
		namespace, name, _ := strings.Cut(from, "/")
		for _, f := range model.Families() {
			timeout := probeTimeout
			if want {
				timeout = patience
			}
			if conn, _, err := hosts[f].connect(t, l.Pod(model.PodID{Namespace: namespace, Name: name}).Namespace(), timeout); (err == nil) != want {
				t.Errorf("%s: %s -> %s: %v, want through %v", what, from, hosts[f].addr, err, want)
			} else if err == nil {
				conn.Close()
			}
		}
	}
	leaves("without a policy", true, "x/on1", denied)
	var talkers []*talker
	for f, host := range denied {
		conn, _, err := host.connect(t, l.Pod(model.PodID{Namespace: "x", Name: "on1"}).Namespace(), patience)
		if err != nil {
			t.Fatal(err)
		}
		talkers = append(talkers, talkTo(t, fmt.Sprint("x/on1 to ", host.addr, ", IPv", f), conn))
	}
	for _, k := range talkers {
		k.wait(t)
	}
	with(-1, egressPolicy("x", "default", rules...))
	changed := time.Now()
	for _, from := range []string{"x/on1", "x/on2"} {
		leaves("with a policy", true, from, allowed)
		leaves("with a policy", false, from, denied)
	}
	drops := follow(t, l.Node("node1"))
	leaves("while drops are followed", false, "x/on1", denied)
	eventually.True(t, "drops that name the rule", func() bool {
		seen := map[string]bool{}
		for _, d := range drops.drops() {
			if d.Direction == "egress" && d.Policy == "egressnetworkpolicy.network.openshift.io/x/default" {
				seen[d.Rule+" "+d.RuleName] = true
			}
		}
		return seen["egress[4] 0.0.0.0/0"] && seen["egress[5] ::/0"]
	})
	drops.end()
	leaves("another namespace", true, "loner/on1", denied)
	expect(t, l, true, "x/on1", "x/on2", model.TCP, 80)
	expect(t, l, false, "x/on1", "loner/on1", model.TCP, 80)
	expect(t, l, true, "x/on1", "node:node2", model.TCP, 80)
	expect(t, l, false, "x/on1", "node:node1", model.TCP, 80)
	expect(t, l, true, "node:node1", "x/on1", model.TCP, 80)
	for _, k := range talkers {
		if at, _ := k.last(); at.Sub(changed) > endedWithin {
			t.Errorf("%s: an echo %s after the policy", k.name, at.Sub(changed))
		}
	}
	with(-1, egressPolicy("x", "default", rules...), egressPolicy("x", "second", "Allow 0.0.0.0/0", "Allow ::/0"))
	leaves("two policies", false, "x/on1", allowed)
	expect(t, l, true, "x/on1", "x/on2", model.TCP, 80)
	with(7, egressPolicy("x", "default", rules...))
	leaves("joined", false, "x/on1", allowed)
	leaves("joined", false, "loner/on2", allowed)
	expect(t, l, true, "x/on1", "loner/on1", model.TCP, 80)
	with(-1)
	leaves("deleted", true, "x/on1", denied)
}
