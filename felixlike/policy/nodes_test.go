package policy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

func newNode(name, address string, cidrs ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDRs: cidrs},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address},
		}},
	}
}

func reasons(problems []model.Problem) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

// TestNodes follows nodes that come, change and go.
func TestNodes(t *testing.T) {
	s := newState(t)
	equal(t, "problems", reasons(s.SetNode(newNode("a", "192.0.2.1", "fd00:1::/64", "10.1.0.5/24"))), "")
	s.SetNode(newNode("b", "192.0.2.2", "10.2.0.0/24"))
	equal(t, "come", s.flush(), "node a [192.0.2.1] [10.1.0.0/24 fd00:1::/64]\nnode b [192.0.2.2] [10.2.0.0/24]")
	s.SetNode(newNode("b", "192.0.2.2", "10.2.0.0/24"))
	equal(t, "again", s.flush(), "")
	old := newNode("b", "192.0.2.3")
	old.Spec.PodCIDR = "10.2.1.0/24"
	s.SetNode(old)
	s.DeleteNode("a")
	equal(t, "change and go", s.flush(), "node b [192.0.2.3] [10.2.1.0/24]\nnode a removed")
	s.DeleteNode("b")
	s.SetNode(old)
	equal(t, "go and come", s.flush(), "")
}

// TestNodeProblems: invalid parts of a node are reported.
func TestNodeProblems(t *testing.T) {
	s := newState(t)
	equal(t, "no CIDR", reasons(s.SetNode(newNode("a", "192.0.2.1"))),
		"node/a: spec.podCIDRs: the node has no pod CIDR; its pods cannot be reached")
	equal(t, "nonsense", reasons(s.SetNode(newNode("a", "home", "10.0.0.0", "10.0.0.0/31", "10.0.0.0/24", "10.0.1.0/24"))), `
node/a: status.addresses[1].address: "home" is no address that a node can have; it is ignored
node/a: spec.podCIDRs[0]: "10.0.0.0" is not a CIDR; it is ignored
node/a: spec.podCIDRs[1]: 10.0.0.0/31 has no room for a gateway and a pod; it is ignored
node/a: spec.podCIDRs[3]: second pod CIDR of IPv4; it is ignored`)
	equal(t, "node", s.flush(), "node a [] [10.0.0.0/24]")
}

// born sets when a node was created, in seconds.
func born(at int64, n *corev1.Node) *corev1.Node {
	n.CreationTimestamp = metav1.Unix(at, 0)
	return n
}

// TestOverlappingNodes refuses the CIDR of the younger node until the older
// one gives its own back; the local node comes before all.
func TestOverlappingNodes(t *testing.T) {
	s := newState(t)
	problems := func(what, want string) {
		t.Helper()
		equal(t, "problems, "+what, reasons(s.NodeProblems()), want)
	}
	a := born(1, newNode("z", "192.0.2.1", "10.1.0.0/16"))
	s.SetNode(born(2, newNode("b", "192.0.2.2", "10.1.7.0/24", "fd00:2::/64")))
	s.SetNode(born(3, newNode("c", "192.0.2.3", "10.0.0.0/8")))
	s.SetNode(a)
	equal(t, "flush", s.flush(), `
node b [192.0.2.2] [fd00:2::/64]
node c [192.0.2.3] []
node z [192.0.2.1] [10.1.0.0/16]`)
	problems("inside and around", `
node/b: spec.podCIDRs: 10.1.7.0/24 overlaps 10.1.0.0/16 of node z and is refused
node/c: spec.podCIDRs: 10.0.0.0/8 overlaps 10.1.0.0/16 of node z and is refused`)
	s.DeleteNode("z")
	equal(t, "the oldest left gets it", s.flush(), "node b [192.0.2.2] [10.1.7.0/24 fd00:2::/64]\nnode z removed")
	problems("of the youngest", "node/c: spec.podCIDRs: 10.0.0.0/8 overlaps 10.1.7.0/24 of node b and is refused")
	s.DeleteNode("c")
	s.flush()
	problems("the overlap is over", "")
	s.SetNode(born(9, newNode("here", "192.0.2.9", "10.1.7.128/25")))
	equal(t, "ours", s.flush(), "node b [192.0.2.2] [fd00:2::/64]\nnode here [192.0.2.9] [10.1.7.128/25]")
	problems("ours", "node/b: spec.podCIDRs: 10.1.7.0/24 overlaps 10.1.7.128/25 of node here and is refused")
	s.SetNode(born(9, newNode("here", "192.0.2.9", "10.99.0.0/24")))
	equal(t, "moved", s.flush(), "node b [192.0.2.2] [10.1.7.0/24 fd00:2::/64]\nnode here [192.0.2.9] [10.99.0.0/24]")
	problems("moved", "")
	s.SetNode(born(4, newNode("wide", "192.0.2.4", "10.200.0.0/16")))
	s.SetNode(born(5, newNode("narrow", "192.0.2.5", "10.200.1.0/24")))
	s.flush()
	s.SetNode(born(9, newNode("here", "192.0.2.9", "10.200.2.0/24")))
	equal(t, "what is refused leaves room", s.flush(), `
node here [192.0.2.9] [10.200.2.0/24]
node narrow [192.0.2.5] [10.200.1.0/24]
node wide [192.0.2.4] []`)
	s.DeleteNode("here")
	s.flush()
	problems("our object is missing", "node/wide: spec.podCIDRs: 10.200.0.0/16 overlaps 10.200.2.0/24 of node here and is refused")
}

// TestReplacedNode: a node is replaced, and the new one has its range. The problem ends with the overlap, and does not blame the node that is
// left, in any order.
func TestReplacedNode(t *testing.T) {
	s := newState(t)
	old, replacement := born(1, newNode("node2", "192.0.2.2", "10.1.0.0/24")), born(2, newNode("c-node9", "192.0.2.9", "10.1.0.0/24"))
	s.SetNode(old)
	s.SetNode(replacement)
	s.flush()
	equal(t, "both", reasons(s.NodeProblems()), "node/c-node9: spec.podCIDRs: 10.1.0.0/24 overlaps 10.1.0.0/24 of node node2 and is refused")
	s.DeleteNode("node2")
	equal(t, "the new one", s.flush(), "node c-node9 [192.0.2.9] [10.1.0.0/24]\nnode node2 removed")
	equal(t, "the new one", reasons(s.NodeProblems()), "")
	s.SetNode(old)
	s.flush()
	s.DeleteNode("c-node9")
	s.flush()
	equal(t, "the old one again", reasons(s.NodeProblems()), "")
}

// TestNodeThatLies: a node writes into its own object what others have. It gets none of it, in any order of arrival, and status names it.
func TestNodeThatLies(t *testing.T) {
	honest := []*corev1.Node{
		born(1, newNode("here", "192.0.2.1", "10.1.1.0/24")), born(3, newNode("n2", "192.0.2.2", "10.1.2.0/24")), born(4, newNode("n3", "192.0.2.3", "10.1.3.0/24")),
	}
	liar := func(at int64, address string, cidrs ...string) *corev1.Node {
		return born(at, newNode("a0", address, cidrs...))
	}
	const (
		n2 = "node n2 [192.0.2.2] [10.1.2.0/24]"
		n3 = "node n3 [192.0.2.3] [10.1.3.0/24]"
	)
	for what, c := range map[string]struct {
		liar        *corev1.Node
		want, named string
	}{
		"honest":                              {liar(5, "192.0.2.9", "10.1.9.0/24"), "node a0 [192.0.2.9] [10.1.9.0/24]|" + n2 + "|" + n3, ""},
		"another node's address":              {liar(5, "192.0.2.2", "10.1.9.0/24"), "node a0 [] [10.1.9.0/24]|node n2 [] [10.1.2.0/24]|" + n3, "node/n2: status.addresses: node a0 has 192.0.2.2 too, so it identifies neither and is refused to both\nnode/a0: status.addresses: node n2 has 192.0.2.2 too, so it identifies neither and is refused to both"},
		"another node's address, the older":   {liar(2, "192.0.2.2", "10.1.9.0/24"), "node a0 [] [10.1.9.0/24]|node n2 [] [10.1.2.0/24]|" + n3, "node/a0: status.addresses: node n2 has 192.0.2.2 too, so it identifies neither and is refused to both\nnode/n2: status.addresses: node a0 has 192.0.2.2 too, so it identifies neither and is refused to both"},
		"this node's address":                 {liar(0, "192.0.2.1", "10.1.9.0/24"), "node a0 [] [10.1.9.0/24]|" + n2 + "|" + n3, "node/a0: status.addresses: 192.0.2.1 is an address of node here and is refused"},
		"a pod's address":                     {liar(5, "10.1.3.7", "10.1.9.0/24"), "node a0 [] [10.1.9.0/24]|" + n2 + "|" + n3, "node/a0: status.addresses: 10.1.3.7 is in 10.1.3.0/24 of node n3 and is refused"},
		"this node's gateway":                 {liar(0, "10.1.1.1", "10.1.9.0/24"), "node a0 [] [10.1.9.0/24]|" + n2 + "|" + n3, "node/a0: status.addresses: 10.1.1.1 is in 10.1.1.0/24 of node here and is refused"},
		"a Service's address":                 {liar(0, "10.96.0.1", "10.1.9.0/24"), "node a0 [] [10.1.9.0/24]|" + n2 + "|" + n3, "node/a0: status.addresses: 10.96.0.1 is one of the Service addresses 10.96.0.0/16 and is refused"},
		"an Egress address":                   {liar(7, "192.0.2.100", "10.1.9.0/24"), "node a0 [] [10.1.9.0/24]|" + n2 + "|" + n3, "node/a0: status.addresses: 192.0.2.100 is the address of egress.felixlike.io/out and is refused"},
		"a pod's address of a younger node":   {liar(0, "10.1.3.7", "10.1.9.0/24"), "node a0 [] [10.1.9.0/24]|" + n2 + "|node n3 [192.0.2.3] []", "node/n3: spec.podCIDRs: 10.1.3.0/24 has the address 10.1.3.7 of node a0 and is refused\nnode/a0: status.addresses: 10.1.3.7 is in a pod CIDR that node n3 claims, so it identifies neither and is refused to both"},
		"a range with another node's address": {liar(5, "192.0.2.9", "192.0.2.3/30"), "node a0 [192.0.2.9] []|" + n2 + "|" + n3, "node/a0: spec.podCIDRs: 192.0.2.0/30 has the address 192.0.2.1 of node here and is refused"},
		"a part of a range":                   {liar(5, "192.0.2.9", "10.1.2.0/25"), "node a0 [192.0.2.9] []|" + n2 + "|" + n3, "node/a0: spec.podCIDRs: 10.1.2.0/25 overlaps 10.1.2.0/24 of node n2 and is refused"},
		"everything":                          {liar(5, "192.0.2.9", "0.0.0.0/0"), "node a0 [192.0.2.9] []|" + n2 + "|" + n3, "node/a0: spec.podCIDRs: 0.0.0.0/0 overlaps the Service addresses 10.96.0.0/16 and is refused"},
		"the Services":                        {liar(0, "192.0.2.9", "10.96.0.0/16"), "node a0 [192.0.2.9] []|" + n2 + "|" + n3, "node/a0: spec.podCIDRs: 10.96.0.0/16 overlaps the Service addresses 10.96.0.0/16 and is refused"},
		"the nodes' network":                  {liar(5, "192.0.2.9", "192.0.2.0/28"), "node a0 [192.0.2.9] []|" + n2 + "|" + n3, "node/a0: spec.podCIDRs: 192.0.2.0/28 has the address 192.0.2.1 of node here and is refused"},
		"an Egress address in its range":      {liar(7, "192.0.2.9", "192.0.2.96/28"), "node a0 [192.0.2.9] []|" + n2 + "|" + n3, "node/a0: spec.podCIDRs: 192.0.2.96/28 has the address 192.0.2.100 of egress.felixlike.io/out and is refused"},
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, first %v", what, first), func(t *testing.T) {
				s := newState(t)
				s.SetServiceCIDRs([]netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")})
				if first {
					s.SetNode(c.liar)
				}
				for _, n := range honest {
					s.SetNode(n)
				}
				out := newEgress(t, "out", "{node: n3, egressIP: 192.0.2.100, appliedTo: {podSelector: {}}}")
				out.CreationTimestamp = metav1.Unix(6, 0)
				s.SetAntrea(out)
				if !first {
					s.flush()
					s.SetNode(c.liar)
				}
				s.flush()
				var got []string
				for _, u := range s.Snapshot() {
					if u, ok := u.(model.NodeUpdate); ok && u.Node.Name != "here" {
						got = append(got, describe(u))
					}
				}
				equal(t, "nodes", strings.Join(got, "|"), c.want)
				equal(t, "problems", reasons(s.NodeProblems()), c.named)
				equal(t, "the Egress", fmt.Sprint(s.model.Egresses[0].Address, s.model.Egresses[0].Node), "192.0.2.100n3")
				s.DeleteNode("a0")
				s.flush()
				equal(t, "problems without it", reasons(s.NodeProblems()), "")
			})
		}
	}
}

// TestNodesWithAnEgressAddress: what a node writes into its status neither takes an Egress away from the node that it names, nor gives it
// to one of two.
func TestNodesWithAnEgressAddress(t *testing.T) {
	begin := func(object antrea.Object, claimants ...*corev1.Node) string {
		s := newState(t)
		for _, n := range append(claimants, born(1, newNode("n1", "192.0.2.1", "10.1.1.0/24"))) {
			s.SetNode(n)
		}
		object.SetCreationTimestamp(metav1.Unix(5, 0))
		s.SetAntrea(object)
		s.flush()
		e := s.model.Egresses[0]
		return strings.TrimSpace(fmt.Sprint(e.Address, " ", e.Node, " ", reasons(s.AntreaProblems())))
	}
	also := func(at int64, name, address string) *corev1.Node {
		n := born(at, newNode(name, address, fmt.Sprintf("10.1.%s.0/24", strings.TrimPrefix(name, "n"))))
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.100"})
		return n
	}
	own := newEgress(t, "e", "{node: n1, egressIP: 192.0.2.100, appliedTo: {podSelector: {}}}")
	foreign := &antrea.Egress{}
	foreign.Name, foreign.Spec.EgressIP = "e", "192.0.2.100"
	foreign.Spec.AppliedTo.PodSelector = &metav1.LabelSelector{}
	equal(t, "a younger node", begin(own, also(6, "n2", "192.0.2.2")), "192.0.2.100 n1")
	if got := begin(own, also(4, "n2", "192.0.2.2")); !strings.Contains(got, "192.0.2.100 is an address of node n2, not of n1") {
		t.Errorf("an older node: %s", got)
	}
	equal(t, "one node", begin(foreign, also(2, "n2", "192.0.2.2")), "192.0.2.100 n2")
	if got := begin(foreign, also(2, "n2", "192.0.2.2"), also(9, "n3", "192.0.2.3")); !strings.Contains(got, "192.0.2.100 is in the status of nodes n2 and n3, so it identifies none of them") {
		t.Errorf("two nodes: %s", got)
	}
}
