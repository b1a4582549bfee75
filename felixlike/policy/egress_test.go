package policy_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// newEgress builds an Egress of our own from the YAML of its spec.
func newEgress(t testing.TB, name, spec string) *antrea.NodeEgress {
	t.Helper()
	e := &antrea.NodeEgress{}
	e.Name = name
	if err := yaml.UnmarshalStrict([]byte(spec), &e.Spec); err != nil {
		t.Fatal(err)
	}
	return e
}

func addressedNode(name, podCIDR string, addresses ...string) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{podCIDR}}}
	n.Name = name
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// TestEgress: an Egress has the addresses of the pods that it selects on all nodes, those of its own family, and
// follows their labels.
func TestEgress(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("shop team=blue"))
	s.SetNamespace(newNamespace("other"))
	s.SetNode(addressedNode("here", "10.0.0.0/24", "192.0.2.1"))
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2"))
	s.SetPod(newPod("shop/a app=web", "10.0.0.2", "fd00::2"))
	s.SetPod(onNode(newPod("shop/b app=web", "10.0.1.2"), "there"))
	s.SetPod(newPod("other/c app=web", "10.0.0.3"))
	host := newPod("shop/host app=web", "192.0.2.1")
	host.Spec.HostNetwork = true
	s.SetPod(host)
	s.flush()
	s.SetAntrea(newEgress(t, "out", "{node: there, egressIP: 192.0.2.100, appliedTo: {namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {app: web}}}}"))
	equal(t, "a new Egress", s.flush(), `egress out 192.0.2.100 at "there", assigned true, of [10.0.0.2 10.0.1.2]`)
	s.SetPod(newPod("shop/a app=db", "10.0.0.2", "fd00::2"))
	s.SetNamespace(newNamespace("other team=blue"))
	equal(t, "other labels", s.flush(), `egress out 192.0.2.100 at "there", assigned true, of [10.0.0.3 10.0.1.2]`)
	s.DeletePod(model.PodID{Namespace: "shop", Name: "b"})
	s.SetAntrea(newEgress(t, "out", "{node: here, egressIP: 'fd00::100', appliedTo: {podSelector: {}}}"))
	equal(t, "another object", s.flush(), `egress out fd00::100 at "here", assigned true, of [fd00::2]`)
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2", "fd00::77"))
	s.flush()
	if again := s.flush(); again != "" || len(s.AntreaProblems()) > 0 {
		t.Errorf("without a change: %q, %v", again, s.AntreaProblems())
	}
	s.DeleteAntrea(antrea.ID{Kind: antrea.KindNodeEgress, Name: "out"})
	s.flush()
	if len(s.model.Egresses) > 0 {
		t.Errorf("left: %v", s.model.Egresses)
	}
}

// TestEgressFailsClosed: without an address that one node holds, packets of the selected pods are dropped, and the problem
// names object, field and reason.
func TestEgressFailsClosed(t *testing.T) {
	for _, c := range []struct{ spec, field, reason, pods string }{
		{"{node: here, egressIP: 192.0.2.100x, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "no address", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 127.0.0.1, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "no address", "[10.0.0.2 fd00::2]"},
		{"{node: here, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "required", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.100, externalIPPool: p, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.externalIPPool", "not supported", "[10.0.0.2 fd00::2]"},
		{"{egressIP: 192.0.2.100, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.node", "required", "[10.0.0.2 fd00::2]"},
		{"{node: nowhere, egressIP: 192.0.2.100, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "no node nowhere", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.2, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "an address of node there", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 10.0.1.9, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "in the pod CIDRs of node there", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.100, appliedTo: {}}", "spec.appliedTo", "packets of all pods", "[10.0.0.2 10.0.0.3 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.100, appliedTo: {group: g}}", "spec.appliedTo.group", "packets of all pods", "[10.0.0.2 10.0.0.3 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.100, appliedTo: {podSelector: {matchExpressions: [{key: a, operator: Is}]}}}", "spec.appliedTo.podSelector.matchExpressions[0].operator", "packets of all pods", "[10.0.0.2 10.0.0.3 fd00::2]"},
	} {
		s := newState(t)
		s.SetNamespace(newNamespace("shop"))
		s.SetNode(addressedNode("here", "10.0.0.0/24", "192.0.2.1"))
		s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2"))
		s.SetPod(newPod("shop/a app=web", "10.0.0.2", "fd00::2"))
		s.SetPod(newPod("shop/b app=db", "10.0.0.3"))
		s.flush()
		s.SetAntrea(newEgress(t, "out", c.spec))
		s.flush()
		if len(s.model.Egresses) != 1 || s.model.Egresses[0].Address.IsValid() || fmt.Sprint(s.model.Egresses[0].Pods) != c.pods {
			t.Errorf("%s: %+v, want pods %s without an address", c.spec, s.model.Egresses, c.pods)
		}
		found := s.AntreaProblems()
		if len(found) != 1 || found[0].Object.String() != "Egress.felixlike.io out" || found[0].Field != c.field || !strings.Contains(found[0].Reason, c.reason) || !strings.Contains(found[0].Reason, "are dropped") {
			t.Errorf("%s: %v, want %s: %s", c.spec, found, c.field, c.reason)
		}
	}
}

// TestEgressOfAntrea: an Egress without a node is for the node that has the address in its status. It has no part in
// ClusterNetworkPolicies: pods of unknown namespaces wait for both.
func TestEgressOfAntrea(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("shop"))
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2", "192.0.2.100"))
	s.SetPod(newPod("shop/a", "10.0.0.2"))
	e := &antrea.Egress{}
	e.Name = "out"
	if err := yaml.UnmarshalStrict([]byte("{egressIP: 192.0.2.100, appliedTo: {podSelector: {}}}"), &e.Spec); err != nil {
		t.Fatal(err)
	}
	if s.AwaitsNamespace("new") {
		t.Error("a pod waits for its namespace without an Egress")
	}
	s.flush()
	s.SetAntrea(e)
	equal(t, "an address of a node", s.flush(), `egress out 192.0.2.100 at "there", assigned false, of [10.0.0.2]`)
	if !s.AwaitsNamespace("new") {
		t.Error("a pod of an unknown namespace does not wait, and an Egress may select it")
	}
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2"))
	s.flush()
	if found := s.AntreaProblems(); len(found) != 1 || !strings.Contains(found[0].Reason, "no node has 192.0.2.100 in its status") {
		t.Errorf("problems: %v", found)
	}
}

// TestEgressesOfOneAddress: the first Egress by name gives an address to a node, and the others share it there.
// A node holds at most 255 addresses; the next one is refused by name.
func TestEgressesOfOneAddress(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("shop"))
	s.SetNode(addressedNode("here", "10.0.0.0/24", "192.0.2.1"))
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2"))
	put := func(name, node, address string) {
		s.SetAntrea(newEgress(t, name, fmt.Sprintf("{node: %s, egressIP: %s, appliedTo: {podSelector: {}}}", node, address)))
	}
	put("a", "here", "192.0.2.100")
	put("b", "there", "192.0.2.100")
	put("c", "here", "192.0.2.100")
	for i := range 255 {
		put(fmt.Sprintf("d%03d", i), "here", fmt.Sprintf("198.51.100.%d", i))
	}
	s.flush()
	var refused []string
	for _, p := range s.AntreaProblems() {
		refused = append(refused, p.Object.Name+": "+p.Reason)
	}
	if len(refused) != 2 || !strings.HasPrefix(refused[0], "b: Egress.felixlike.io a has given 192.0.2.100 to node here") ||
		!strings.HasPrefix(refused[1], "d254: node here holds 255 addresses") {
		t.Errorf("refused: %q", refused)
	}
	for _, e := range s.model.Egresses {
		if name := e.Object.Name; e.Address.IsValid() != (name != "b" && name != "d254") {
			t.Errorf("%s has %v", name, e.Address)
		}
	}
}
