package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// addressed is the NetNamespace of x with addresses, and the HostSubnets of two nodes with theirs.
func addressed(own, node1, node2 string) string {
	host := func(name, addresses string) string {
		return fmt.Sprintf("---\n{apiVersion: network.openshift.io/v1, kind: HostSubnet, metadata: {name: %s}, host: %[1]s, egressIPs: [%s]}\n", name, addresses)
	}
	return fmt.Sprintf("{apiVersion: network.openshift.io/v1, kind: NetNamespace, metadata: {name: x}, netname: x, netid: 7, egressIPs: [%s]}\n", own) +
		host("node1", node1) + host("node2", node2)
}

// TestProjectAddresses: an outside host sees pods of a namespace by the addresses of its NetNamespace that HostSubnets give to nodes, on whatever
// node the pod is, and those of a joined namespace too. Pods of another namespace keep their node's address. Without a node, nothing leaves.
func TestProjectAddresses(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.OpenFlow} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			projectAddresses(t, newLabWith(t, lab.Config{Backend: backend, Isolation: config.IsolationNamespaces}))
		})
	}
}

func projectAddresses(t *testing.T, l *lab.Lab) {
	const four, other, six = "192.168.50.100", "192.168.50.101", "fd00:10::c0a8:3264"
	const pods = threeNodes + "---\n{kind: Pod, metadata: {namespace: other, name: e}, spec: {nodeName: node1, containers: [{name: c}]}}\n"
	with := func(own, node1, node2, more string) {
		t.Helper()
		set(t, l, state(t, pods, addressed(own, node1, node2), more))
	}
	const joined = "{apiVersion: network.openshift.io/v1, kind: NetNamespace, metadata: {name: other}, netname: other, netid: 7}\n"
	hosts := map[model.Family]*outsideHost{}
	with(four+", '"+six+"'", four, "'"+six+"'", "")
	for _, f := range model.Families() {
		hosts[f] = newOutsideHost(t, l, "203.0.113.9", f)
		want := map[model.Family]string{model.IPv4: four, model.IPv6: six}[f]
		for _, pod := range []string{"a", "b", "c"} {
			expectSource(t, l, hosts[f], pod, want)
		}
	}
	eventually.True(t, "a pod of another namespace has the address of its node", func() bool {
		_, seen, err := hosts[model.IPv4].connect(t, l.Pod(model.PodID{Namespace: "other", Name: "e"}).Namespace(), patience)
		return err == nil && seen == l.Node("node1").Address(model.IPv4).String()
	})
	if out, errs, _ := felixctl(t, "trace", "--socket", l.Node("node1").ControlSocket(), "--from", "x/a", "--to", "203.0.113.9", "--port", "7000/tcp"); !strings.Contains(out, four) {
		t.Errorf("the trace does not name the address:\n%s%s", out, errs)
	}
	with(four, four, "", joined)
	_, seen, err := hosts[model.IPv4].connect(t, l.Pod(model.PodID{Namespace: "other", Name: "e"}).Namespace(), patience)
	if err != nil || seen != four {
		t.Errorf("a pod of a joined namespace comes as %s (%v), want %s", seen, err, four)
	}
	// Two addresses at two nodes: each pod has one of them.
	with(four+", "+other, four, other, "")
	sources := map[string]string{}
	for _, pod := range []string{"a", "b", "c", "d"} {
		_, seen, err := hosts[model.IPv4].connect(t, l.Pod(model.PodID{Namespace: "x", Name: pod}).Namespace(), patience)
		if sources[pod] = seen; err != nil || seen != four && seen != other {
			t.Errorf("pod %s comes as %s (%v)", pod, seen, err)
		}
	}
	// Without the one node, its pods have the other address.
	with(four+", "+other, "", other, "")
	for pod := range sources {
		expectSource(t, l, hosts[model.IPv4], pod, other)
	}
	with(four+", "+other, "", "", "")
	for pod := range sources {
		expectSource(t, l, hosts[model.IPv4], pod, nobody)
	}
	out, _, code := felixctl(t, "status", "--socket", l.Node("node1").ControlSocket())
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "192.168.50.100 is in no HostSubnet's egressIPs or egressCIDRs") {
		t.Errorf("status does not say why, exit %d:\n%s", code, out)
	}
	set(t, l, state(t, pods))
	for pod, node := range map[string]string{"a": "node1", "c": "node2"} {
		expectSource(t, l, hosts[model.IPv4], pod, l.Node(node).Address(model.IPv4).String())
	}
}

// TestProjectElection: of the nodes with an address in the egressCIDRs of their HostSubnets one has it. When its agent dies, the other one takes it, and the
// host outside sees pods of the namespace with it or not at all.
func TestProjectElection(t *testing.T) {
	t.Parallel()
	l := newLabWith(t, lab.Config{Backend: config.NFTables, Isolation: config.IsolationNamespaces})
	set(t, l, state(t, threeNodes))
	a := serveLab(t, l)
	put := func(resource, object string) {
		t.Helper()
		if out, err := a.admin.CoreV1().RESTClient().Post().AbsPath("/apis/network.openshift.io/v1/"+resource).SetHeader("Content-Type", "application/json").
			Body([]byte(`{"apiVersion":"network.openshift.io/v1",` + object + `}`)).DoRaw(t.Context()); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	address := elected[model.IPv4]
	put("netnamespaces", `"kind":"NetNamespace","metadata":{"name":"x"},"netname":"x","netid":7,"egressIPs":["`+address.String()+`"]`)
	for _, node := range []string{"node1", "node2"} {
		put("hostsubnets", `"kind":"HostSubnet","metadata":{"name":"`+node+`"},"host":"`+node+`","egressCIDRs":["`+address.String()+`/28"]`)
	}
	first := ""
	eventually.True(t, "a node takes the address", func() bool { first = a.holder(t, address); return first != "" })
	if first == "node3" {
		t.Error("node3 has the address without a HostSubnet")
	}
	host := newOutsideHost(t, l, "203.0.113.9", model.IPv4)
	eventually.True(t, "a pod leaves with the address", func() bool {
		_, seen, err := host.connect(t, l.Pod(pod("d")).Namespace(), time.Second)
		return err == nil && seen == address.String()
	})
	watched := watchSources(t, host, l.Pod(pod("d")).Namespace())
	if err := l.Node(first).KillAgent(); err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"node1": "node2", "node2": "node1"}[first]
	eventually.True(t, "the other node takes the address", func() bool { return a.holder(t, address) == other })
	taken := time.Now()
	eventually.True(t, "the pod leaves again", func() bool { return watched.last(address.String()).After(taken) })
	watched.stop()
	if all := watched.all(); !slices.Equal(all, []string{address.String()}) {
		t.Errorf("the host outside has seen the pod with %v, not only %s", all, address)
	}
}
