package managers

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	engine "github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// policiesOfEveryPod are the updates of a node with that many pods, whose admin tier has
// 200 policies of 25 ingress rules that select everything.
func policiesOfEveryPod(pods int) (updates []model.Update, rules int) {
	e := engine.New("node1")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.10.0.0/16", []string{"10.10.0.0/16"}
	e.SetNode(n)
	e.SetNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	var attachments []model.Update
	for i := range pods {
		address := netip.AddrFrom4([4]byte{10, 10, byte(1 + i/200), byte(2 + i%200)})
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: fmt.Sprintf("pod-%d", i)}}
		p.Spec.NodeName = "node1"
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address.String(), PodIPs: []corev1.PodIP{{IP: address.String()}}}
		e.SetPod(p)
		a := &model.Attachment{Pod: model.PodID{Namespace: "x", Name: p.Name}, Interface: p.Name, OFPort: uint32(10 + i), Addresses: []netip.Addr{address}}
		e.SetLocalAddresses(a.Pod, a.Addresses)
		attachments = append(attachments, model.AttachmentUpdate{Attachment: a})
	}
	for i := range 200 {
		p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%03d", i)}}
		p.Spec.Tier, p.Spec.Priority = v1alpha2.AdminTier, int32(i)
		p.Spec.Subject.Namespaces = &metav1.LabelSelector{}
		for j := range 25 {
			port := &v1alpha2.Port{Number: int32(1000 + 25*i + j)}
			p.Spec.Ingress = append(p.Spec.Ingress, v1alpha2.ClusterNetworkPolicyIngressRule{
				Action:    v1alpha2.ClusterNetworkPolicyRuleActionDeny,
				From:      []v1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}},
				Protocols: []v1alpha2.ClusterNetworkPolicyProtocol{{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}}},
			})
			rules++
		}
		e.SetClusterNetworkPolicy(p)
	}
	return slices.Concat(e.Flush(), attachments), rules
}

// TestClusterPoliciesOfEveryPod measures the cost of 200 ClusterNetworkPolicies that select everything, on a
// node with few pods and with many. A pod costs the same under any number of rules.
func TestClusterPoliciesOfEveryPod(t *testing.T) {
	const few, many = 10, 60
	cost := func(backend string, pods int) (size, rules int) {
		updates, rules := policiesOfEveryPod(pods)
		if backend == "openflow" {
			m, r := newSwitchPolicy()
			send(m, updates...)
			m.CompleteDeferredWork()
			return len(r.flows()), rules
		}
		j := newJudge(t, "node1", backend, renderers()[backend])
		j.send(updates...)
		for _, c := range j.kept {
			size += len(c.Rules)
		}
		return size, rules
	}
	for backend, bound := range map[string]int{"nftables": 0, "iptables": 8, "openflow": 8} {
		small, rules := cost(backend, few)
		large, _ := cost(backend, many)
		perPod := (large - small) / (many - few)
		t.Logf("%s: %d rules; %d pods: %d rules or flows; %d pods: %d, %d for each further pod", backend, rules, few, small, many, large, perPod)
		if perPod > bound {
			t.Errorf("%s: a pod costs %d rules or flows, the bound is %d", backend, perPod, bound)
		}
	}
}
