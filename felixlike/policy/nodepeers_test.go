package policy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"
)

// TestNodePeersAreUsable: a node writes its own status. Addresses that no packet can have
// are left out: with them, the kernel would refuse the set, and close pods on every node.
func TestNodePeersAreUsable(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("shop"))
	s.SetPod(onNode(newPod("shop/web", "10.0.0.2"), "here"))
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte("{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {}}]}]}"), &p.Spec); err != nil {
		t.Fatal(err)
	}
	s.SetClusterNetworkPolicy(p)
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "there"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Address: "0.0.0.0"}, {Address: "::"}, {Address: "127.0.0.1"}, {Address: "224.0.0.1"}, {Address: "fe80::1%eth0"}, {Address: "there"}, {Address: "192.0.2.5"},
	}}})
	var peers []string
	for line := range strings.Lines(s.flush()) {
		if strings.HasPrefix(line, "group") {
			peers = append(peers, line)
		}
	}
	if len(peers) != 1 || !strings.Contains(peers[0], "+[192.0.2.5") || strings.ContainsAny(peers[0], ",%") || strings.Count(peers[0], ".") != 3 {
		t.Errorf("the peers are %q, want 192.0.2.5 alone", peers)
	}
}
