package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
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

// TestIsolationOfLiveCluster: isolation goes on and off while pods run. Connections that both states allow go on, those that isolation denies end,
// and what policy denies in both states never passes.
func TestIsolationOfLiveCluster(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.OpenFlow} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			isolationOfLiveCluster(t, newLabWith(t, lab.Config{Backend: backend, ExistingConnections: config.Revalidate}))
		})
	}
}

func isolationOfLiveCluster(t *testing.T, l *lab.Lab) {
	t.Helper()
	const closed = `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: milk, name: closed}
spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: x}}}]}]}
`
	set(t, l, state(t, "{kind: Node, metadata: {name: node1}}\n---\n{kind: Node, metadata: {name: node2}}\n", project("x", 7)+project("milk", 7)+project("loner", -1)+closed))
	talks := func(to string) (all []*talker) {
		for _, f := range model.Families() {
			conn := dialTo(t, l, "on1", "tcp", netip.AddrPortFrom(l.Pod(model.PodID{Namespace: to, Name: "on2"}).Address(f), 80))
			k := talkTo(t, fmt.Sprintf("x/on1 to %s/on2, IPv%v", to, f), conn)
			k.wait(t)
			all = append(all, k)
		}
		return all
	}
	kept, denied := talks("milk"), talks("loner")
	ctx, stop := context.WithCancel(t.Context())
	done, tries := make(chan struct{}), 0
	go func() {
		defer close(done)
		from, to := l.Pod(model.PodID{Namespace: "loner", Name: "on1"}), l.Pod(model.PodID{Namespace: "milk", Name: "on2"})
		for ctx.Err() == nil {
			for _, f := range model.Families() {
				tries++
				if conn, err := dialIn(from.Namespace(), "tcp", netip.AddrPortFrom(to.Address(f), 80).String(), 20*time.Millisecond); err == nil {
					conn.Close()
					t.Errorf("try %d over IPv%v of what policy denies passed", tries, f)
				}
			}
		}
	}()
	defer func() {
		stop()
		<-done
	}()
	turn := func(setting string) func() {
		return func() {
			for _, node := range []string{"node1", "node2"} {
				l.Node(node).Settings().Isolation = setting
				if err := l.RestartAgent(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			}
			expect(t, l, setting == config.IsolationNone, "x/on1", "loner/on2", model.TCP, 80)
			expect(t, l, true, "x/on1", "milk/on2", model.TCP, 80)
		}
	}
	end(t, "isolation goes on", nil, kept, turn(config.IsolationNamespaces))
	ended := map[*talker]int{}
	for _, k := range denied {
		// The first look at connections is some time after the agent is in sync.
		eventually.True(t, k.name+" has ended", func() bool { at, _ := k.last(); return time.Since(at) > endedWithin })
		_, ended[k] = k.last()
	}
	end(t, "isolation is on", nil, kept, func() {})
	for k, before := range ended {
		if _, n := k.last(); n > before {
			t.Errorf("%s goes on after it had ended", k.name)
		}
	}
	end(t, "isolation goes off", nil, kept, turn(config.IsolationNone))
	stop()
	<-done
	if tries < 20 {
		t.Errorf("%d tries of what policy denies", tries)
	}
}
