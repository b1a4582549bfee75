package policy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"Node a: spec.podCIDRs: the node has no pod CIDR; its pods cannot be reached")
	equal(t, "nonsense", reasons(s.SetNode(newNode("a", "home", "10.0.0.0", "10.0.0.0/31", "10.0.0.0/24", "10.0.1.0/24"))), `
Node a: status.addresses[1].address: "home" is no address that a node can have; it is ignored
Node a: spec.podCIDRs[0]: "10.0.0.0" is not a CIDR; it is ignored
Node a: spec.podCIDRs[1]: 10.0.0.0/31 has no room for a gateway and a pod; it is ignored
Node a: spec.podCIDRs[3]: second pod CIDR of IPv4; it is ignored`)
	equal(t, "node", s.flush(), "node a [] [10.0.0.0/24]")
}

// TestOverlappingNodes refuses the CIDR of the later node until the earlier
// one gives its own back; the local node comes before all.
func TestOverlappingNodes(t *testing.T) {
	s := newState(t)
	s.SetNode(newNode("a", "192.0.2.1", "10.1.0.0/16"))
	equal(t, "inside", reasons(s.SetNode(newNode("b", "192.0.2.2", "10.1.7.0/24", "fd00:2::/64"))),
		"Node b: spec.podCIDRs: 10.1.7.0/24 overlaps 10.1.0.0/16 of node a and is refused")
	equal(t, "around", reasons(s.SetNode(newNode("c", "192.0.2.3", "10.0.0.0/8"))),
		"Node c: spec.podCIDRs: 10.0.0.0/8 overlaps 10.1.0.0/16 of node a and is refused")
	equal(t, "flush", s.flush(), `
node a [192.0.2.1] [10.1.0.0/16]
node b [192.0.2.2] [fd00:2::/64]
node c [192.0.2.3] []`)
	s.DeleteNode("a")
	equal(t, "the first waiting gets it", s.flush(), "node b [192.0.2.2] [10.1.7.0/24 fd00:2::/64]\nnode a removed")
	equal(t, "ours", reasons(s.SetNode(newNode("here", "192.0.2.9", "10.1.7.128/25"))),
		"Node b: spec.podCIDRs: 10.1.7.0/24 overlaps 10.1.7.128/25 of node here and is refused")
	equal(t, "evicted", s.flush(), "node b [192.0.2.2] [fd00:2::/64]\nnode here [192.0.2.9] [10.1.7.128/25]")
	s.SetNode(newNode("here", "192.0.2.9", "10.99.0.0/24"))
	equal(t, "moved", s.flush(), "node b [192.0.2.2] [10.1.7.0/24 fd00:2::/64]\nnode here [192.0.2.9] [10.99.0.0/24]")
	s.SetNode(newNode("wide", "192.0.2.4", "10.200.0.0/16"))
	s.SetNode(newNode("narrow", "192.0.2.5", "10.200.1.0/24"))
	s.flush()
	s.SetNode(newNode("here", "192.0.2.9", "10.200.2.0/24"))
	equal(t, "what is evicted leaves room", s.flush(), `
node here [192.0.2.9] [10.200.2.0/24]
node narrow [192.0.2.5] [10.200.1.0/24]
node wide [192.0.2.4] []`)
}
