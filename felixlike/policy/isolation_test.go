package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

func project(name string, id int64) *antrea.NetNamespace {
	o := &antrea.NetNamespace{NetName: name, NetID: &id}
	o.Name = name
	return o
}

// TestJoinTouchesTwoNamespaces: with many isolated namespaces, a join, its end, and a new namespace change the policy of one
// namespace and the group of its class, and no list of an endpoint.
func TestJoinTouchesTwoNamespaces(t *testing.T) {
	s := newState(t)
	s.SetIsolation(true)
	for i := range 50 {
		s.SetNamespace(newNamespace(fmt.Sprintf("ns%d", i)))
		s.SetPod(newPod(fmt.Sprintf("ns%d/a", i), fmt.Sprintf("10.0.0.%d", i+2)))
	}
	s.SetAntrea(project("ns1", 7))
	s.flush()
	change := func(what, want string, change func()) {
		t.Helper()
		before := s.Work()
		change()
		got := s.flush()
		work := s.Work()
		equal(t, what, got, want)
		if visits := work.Visits - before.Visits; visits > 40 {
			t.Errorf("%s: %d visits", what, visits)
		}
	}
	const number = `group "all pods in namespaces isolation.felixlike.io/number=7" `
	change("a join", number+`+[10.0.0.4] -[]
policy isolation/ns2 2 ingress 0 egress
group removed`, func() { s.SetAntrea(project("ns2", 7)) })
	change("its end", `group "all pods in namespace ns2" +[10.0.0.4] -[]
`+number+`+[] -[10.0.0.4]
policy isolation/ns2 2 ingress 0 egress`, func() { s.DeleteAntrea(project("ns2", 7).ID()) })
	change("a new namespace", `group "all pods in namespace late" +[10.0.0.99] -[]
policy isolation/late 2 ingress 0 egress
endpoint late/a ingress [] egress []`, func() {
		s.SetNamespace(newNamespace("late"))
		s.SetPod(newPod("late/a", "10.0.0.99"))
	})
	change("a global namespace", `group "all pods in namespaces isolation.felixlike.io/global=true" +[10.0.0.99] -[]
endpoint late/a ingress [] egress []
policy isolation/late removed
group removed`, func() { s.SetAntrea(project("late", 0)) })
	s.SetIsolation(false)
	if got := s.flush(); strings.Contains(got, "+[") || len(s.model.Policies) > 0 {
		t.Errorf("without isolation: %s\n%v", got, s.model.Policies)
	}
}

// TestClosedWithoutNamespace: a pod whose Namespace is not known is isolated, waits for it, and is none of a class with a number.
func TestClosedWithoutNamespace(t *testing.T) {
	s := newState(t)
	s.SetIsolation(true)
	s.SetNamespace(newNamespace("tea"))
	s.SetAntrea(project("tea", 7))
	s.SetAntrea(project("milk", 7))
	s.SetPod(newPod("tea/a", "10.0.0.2"))
	s.SetPod(newPod("milk/a", "10.0.0.3"))
	s.flush()
	if got := len(s.model.Policies); got != 2 || !s.AwaitsNamespace("milk") || s.AwaitsNamespace("tea") {
		t.Errorf("%d policies, awaits milk %t, tea %t", got, s.AwaitsNamespace("milk"), s.AwaitsNamespace("tea"))
	}
	s.SetNamespace(newNamespace("milk isolation.felixlike.io/global=true isolation.felixlike.io/number=8"))
	equal(t, "its Namespace", s.flush(), `group "all pods in namespaces isolation.felixlike.io/number=7" +[10.0.0.3] -[]`)
}

// TestMissingNodeKeepsIsolation: while the Node of this node is missing, its pods are still no strangers to the deny, and a namespace that
// gets its first pod then is as closed.
func TestMissingNodeKeepsIsolation(t *testing.T) {
	s := newState(t)
	s.SetIsolation(true)
	s.SetNode(newNode("here", "192.0.2.1", "10.0.0.0/24"))
	s.SetNamespace(newNamespace("tea"))
	s.SetPod(newPod("tea/a", "10.0.0.2"))
	s.flush()
	s.DeleteNode("here")
	if got := s.flush(); strings.Contains(got, "prefixes") || strings.Contains(got, "gateways") {
		t.Errorf("without the node: %s", got)
	}
	s.SetNamespace(newNamespace("milk"))
	s.SetPod(newPod("milk/a", "10.0.0.3"))
	s.flush()
	s.SetNode(newNode("here", "192.0.2.1", "10.0.0.0/24"))
	if got := s.flush(); strings.Contains(got, "prefixes") || strings.Contains(got, "gateways") {
		t.Errorf("with the node again: %s", got)
	}
}
