package bench

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/model"
)

// packetsPort is what the server pod listens on.
const packetsPort = 8080

// rulesEach is how many rules a policy has.
const rulesEach = 10

// packetsState is a node with two pods. So many policies apply to the server;
// all rules but the last one name other peers or other ports.
func packetsState(policies int) lab.State {
	s := lab.State{
		Nodes: []*corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: packetsNode},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.77.11"}}},
		}},
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}},
		Pods: []*corev1.Pod{
			packetsPod(packetsClient(), "10.244.1.10"),
			packetsPod(packetsServer(), "10.244.1.11"),
		},
	}
	for i := range policies {
		p := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: fmt.Sprintf("policy-%05d", i)},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": packetsServer().Name}},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			},
		}
		for j := range rulesEach {
			rule := networkingv1.NetworkPolicyIngressRule{
				// Other peers on the port, and the client on other ports.
				From:  []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.0/24", 100+i%100, j)}}},
				Ports: []networkingv1.NetworkPolicyPort{{Port: ptr(intstr.FromInt32(packetsPort))}},
			}
			if j%2 == 1 {
				rule.From = []networkingv1.NetworkPolicyPeer{clientPeer()}
				rule.Ports[0].Port = ptr(intstr.FromInt32(int32(10000 + rulesEach*(i%5000) + j)))
			}
			if i == policies-1 && j == rulesEach-1 {
				rule.Ports[0].Port = ptr(intstr.FromInt32(packetsPort))
			}
			p.Spec.Ingress = append(p.Spec.Ingress, rule)
		}
		s.Policies = append(s.Policies, p)
	}
	return s
}

func clientPeer() networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": packetsClient().Name}}}
}

func packetsPod(id model.PodID, address string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, Labels: map[string]string{"app": id.Name}},
		Spec:       corev1.PodSpec{NodeName: packetsNode, Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}},
	}
}

func ptr[T any](v T) *T { return &v }
