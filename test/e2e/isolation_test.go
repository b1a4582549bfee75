package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// project is a namespace with a pod on each of two nodes, and its NetNamespace if it has a number.
func project(name string, number int) string {
	var b strings.Builder
	for i := range 2 {
		fmt.Fprintf(&b, "---\n{kind: Pod, metadata: {namespace: %s, name: on%d}, spec: {nodeName: node%[2]d, containers: [{name: c, ports: [{containerPort: 80}]}]}}\n", name, i+1)
	}
	if number >= 0 {
		fmt.Fprintf(&b, "---\n{apiVersion: network.openshift.io/v1, kind: NetNamespace, metadata: {name: %s}, netname: %[1]s, netid: %d}\n", name, number)
	}
	return b.String()
}

// TestIsolation sends packets between projects, on one node and between two, and from nodes: each reaches its own, joined and
// global ones. A tier opens no other project. A join is in force when it is reported; after the end of one, no packet
// of an old connection arrives.
func TestIsolation(t *testing.T) {
	t.Parallel()
	for _, backend := range places() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			isolation(t, newLabWith(t, lab.Config{Backend: backend, Isolation: config.IsolationNamespaces, ExistingConnections: config.Revalidate}))
		})
	}
}

func isolation(t *testing.T, l *lab.Lab) {
	t.Helper()
	const twoNodes = "{kind: Node, metadata: {name: node1}}\n---\n{kind: Node, metadata: {name: node2}}\n"
	const opened = `---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: open}
spec: {tier: emergency, priority: 1, appliedTo: [{namespaceSelector: {}}], ingress: [{action: Allow}]}
`
	with := func(milk int) lab.State {
		return state(t, twoNodes, project("x", 7)+project("milk", milk)+project("loner", -1)+project("common", 0)+opened)
	}
	set(t, l, with(7))
	reach := map[string]string{"x": "x milk common", "milk": "x milk common", "loner": "loner common", "common": "x milk loner common"}
	matrix := func() {
		t.Helper()
		for from, all := range reach {
			for _, to := range []string{"x", "milk", "loner", "common"} {
				for _, node := range []string{"1", "2"} {
					if from != to {
						expect(t, l, strings.Contains(all, to), from+"/on1", to+"/on"+node, model.TCP, 80)
					}
				}
			}
			expect(t, l, true, from+"/on1", from+"/on2", model.TCP, 80)
			for _, node := range []string{"node1", "node2"} {
				expect(t, l, true, "node:"+node, from+"/on1", model.TCP, 80)
			}
		}
	}
	matrix()
	var talkers []*talker
	for _, f := range model.Families() {
		to := l.Pod(model.PodID{Namespace: "milk", Name: "on2"})
		conn := dialTo(t, l, "on1", "tcp", netip.AddrPortFrom(to.Address(f), 80))
		talkers = append(talkers, talkTo(t, fmt.Sprint("x/on1 to milk/on2, IPv", f), conn))
	}
	for _, k := range talkers {
		k.wait(t)
	}
	set(t, l, with(8))
	changed := time.Now()
	reach = map[string]string{"x": "x common", "milk": "milk common"}
	matrix()
	for _, k := range talkers {
		if at, _ := k.last(); at.Sub(changed) > endedWithin {
			t.Errorf("%s: an echo %s after the end of the join", k.name, at.Sub(changed))
		}
	}
}
