package truthtable

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// Objects is a step as Kubernetes objects, in the order of the file.
type Objects struct {
	Nodes           []*corev1.Node
	Namespaces      []*corev1.Namespace
	Pods            []*corev1.Pod
	Policies        []*networkingv1.NetworkPolicy
	ClusterPolicies []*v1alpha2.ClusterNetworkPolicy
	Antrea          antrea.Objects
}

// Objects turns the step into Kubernetes objects. Nodes and pods are
// dual-stack: they have their address of the file, then the mapped IPv6 one.
// The policies' ipBlocks and networks are mapped to the family asked for.
func (s Step) Objects(policyFamily model.Family) Objects {
	var o Objects
	for _, n := range s.Nodes {
		o.Nodes = append(o.Nodes, n.object())
	}
	for _, n := range s.Namespaces {
		o.Namespaces = append(o.Namespaces, &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels},
		})
	}
	for _, p := range s.Pods {
		o.Pods = append(o.Pods, p.object())
	}
	for i := range s.Policies {
		p := MapPolicy(&s.Policies[i], policyFamily)
		p.TypeMeta = metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"}
		o.Policies = append(o.Policies, p)
	}
	for i := range s.ClusterPolicies {
		p := MapClusterPolicy(&s.ClusterPolicies[i], policyFamily)
		p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha2.GroupVersion.String(), Kind: "ClusterNetworkPolicy"}
		o.ClusterPolicies = append(o.ClusterPolicies, p)
	}
	o.Antrea = MapAntrea(s.Antrea, policyFamily)
	return o
}

func (n *Node) object() *corev1.Node {
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels},
	}
	for _, a := range bothFamilies(n.IP) {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	for _, f := range familiesFrom(n.PodCIDR.Addr()) {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, MapPrefix(n.PodCIDR, f).String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	return node
}

func (p *Pod) object() *corev1.Pod {
	container := corev1.Container{Name: "serve", Image: "serve"}
	for _, port := range p.Ports {
		container.Ports = append(container.Ports, corev1.ContainerPort{
			Name: port.Name, ContainerPort: int32(port.Port), Protocol: corev1.Protocol(port.Protocol),
		})
	}
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels},
		Spec:       corev1.PodSpec{NodeName: p.Node, Containers: []corev1.Container{container}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, a := range bothFamilies(p.IP) {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	pod.Status.PodIP = pod.Status.PodIPs[0].IP
	return pod
}

func bothFamilies(a netip.Addr) []netip.Addr {
	var all []netip.Addr
	for _, f := range familiesFrom(a) {
		all = append(all, MapAddr(a, f))
	}
	return all
}

// familiesFrom lists the families that an address of a table has a value in.
func familiesFrom(a netip.Addr) []model.Family {
	if a.Is4() {
		return model.Families()
	}
	return []model.Family{model.IPv6}
}
