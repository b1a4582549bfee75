package workload

import (
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// Node is the name of the node that the workload is for.
const Node = "node1"

// peersPerNode is the number of pods on each of the other nodes.
const peersPerNode = 100

// Workload makes the objects of a profile. Everything in it is IPv4: so are the
// figures of others that ours stand beside.
type Workload struct{ Profile }

// New returns the workload of a profile.
func New(p Profile) Workload { return Workload{p} }

// Events returns every object of the cluster, in the order of a datastore's
// first batch.
func (w Workload) Events() []datastore.Event {
	var events []datastore.Event
	add := func(e datastore.Event) { events = append(events, e) }
	add(datastore.NodeSet{Node: node(Node, "192.168.50.10", "10.10.0.0/20")})
	for i := range w.peerNodes() {
		add(datastore.NodeSet{Node: node(peerNode(i), peerNodeAddress(i).String(), peerCIDR(i).String())})
	}
	for i := range w.Namespaces {
		add(datastore.NamespaceSet{Namespace: namespace(targets(i), "targets")})
		add(datastore.NamespaceSet{Namespace: namespace(peers(i), "peers")})
	}
	for i := range w.Endpoints {
		add(datastore.PodSet{Pod: w.endpoint(i)})
	}
	for i := range w.Groups * w.GroupSize {
		add(datastore.PodSet{Pod: w.peer(i)})
	}
	for i := range w.Policies {
		add(datastore.NetworkPolicySet{Policy: w.policy(i)})
	}
	return events
}

// Attachments returns the attachment of every endpoint.
func (w Workload) Attachments() []model.Attachment {
	var all []model.Attachment
	for i := range w.Endpoints {
		p := w.endpoint(i)
		all = append(all, attachment(p, i))
	}
	return all
}

func (w Workload) peerNodes() int { return (w.Groups*w.GroupSize + peersPerNode - 1) / peersPerNode }

func (w Workload) endpointsPerNamespace() int { return w.Endpoints / w.Namespaces }

func (w Workload) policiesPerNamespace() int { return w.Policies / w.Namespaces }

// endpoint is the i-th pod of this node. Its policies are consecutive and begin at a
// different place for each pod, so that no two endpoints have the
// same list: replicas that share one would be cheaper.
func (w Workload) endpoint(i int) *corev1.Pod {
	perNamespace, count := w.policiesPerNamespace(), w.endpointsPerNamespace()
	stride := max(1, perNamespace/count)
	first := i % count * stride
	labels := map[string]string{}
	for n := range w.PoliciesPerEndpoint {
		labels[policyLabel((first+n)%perNamespace)] = "yes"
	}
	return pod(targets(i/count), fmt.Sprintf("endpoint-%04d", i), Node, endpointAddress(i), labels)
}

// peer is the i-th pod of the other nodes: a member of one group.
func (w Workload) peer(i int) *corev1.Pod {
	address := nth(peerCIDR(i/peersPerNode), 2+i%peersPerNode)
	return w.memberPod(fmt.Sprintf("peer-%05d", i), i%w.Groups, i, address)
}

// memberPod is a pod of another node that the selector of a group matches.
func (w Workload) memberPod(name string, group, i int, address netip.Addr) *corev1.Pod {
	on := peerNode(i / peersPerNode % w.peerNodes())
	return pod(peers(i%w.Namespaces), name, on, address, map[string]string{"app": app(group)})
}

// policy is the i-th policy.
func (w Workload) policy(i int) *networkingv1.NetworkPolicy {
	perNamespace := w.policiesPerNamespace()
	return w.newPolicy(targets(i/perNamespace), fmt.Sprintf("policy-%04d", i), policyLabel(i%perNamespace), i)
}

// newPolicy makes a policy for the pods with the label: half of its rules are
// ingress. The i-th policy's rules go through the groups in order.
func (w Workload) newPolicy(in, name, label string, i int) *networkingv1.NetworkPolicy {
	p := Policy(in, name)
	p.Spec.PodSelector.MatchLabels = map[string]string{label: "yes"}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	for n := range w.RulesPerPolicy {
		peer := []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "peers"}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": app((i*w.RulesPerPolicy + n) % w.Groups)}},
		}}
		ports := []networkingv1.NetworkPolicyPort{port(8000 + n)}
		if n < w.RulesPerPolicy/2 {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peer, Ports: ports})
		} else {
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peer, Ports: ports})
		}
	}
	return p
}

// Policy returns a policy without a spec.
func Policy(in, name string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name},
	}
}

func targets(i int) string { return fmt.Sprintf("targets-%d", i) }

func peers(i int) string { return fmt.Sprintf("peers-%d", i) }

func policyLabel(i int) string { return fmt.Sprintf("policy-%04d", i) }

func app(group int) string { return fmt.Sprintf("app-%03d", group) }

func peerNode(i int) string { return fmt.Sprintf("peer-%03d", i) }

func endpointAddress(i int) netip.Addr { return nth(netip.MustParsePrefix("10.10.0.0/20"), 2+i) }

func peerNodeAddress(i int) netip.Addr {
	return nth(netip.MustParsePrefix("192.168.51.0/24"), 256*(i/250)+1+i%250)
}

// peerCIDR is a prefix of 1,024 addresses for each of the other nodes.
func peerCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(nth(netip.MustParsePrefix("10.64.0.0/10"), i*1024), 22)
}

// nth returns the n-th address of an IPv4 prefix.
func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Addr().As4()
	v := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	v += uint32(n)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

func node(name, address, cidr string) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}
}

func namespace(name, role string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": role}},
	}
}

func pod(in, name, on string, address netip.Addr, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: on},
		Status:     corev1.PodStatus{PodIP: address.String(), PodIPs: []corev1.PodIP{{IP: address.String()}}},
	}
}

func attachment(p *corev1.Pod, i int) model.Attachment {
	return model.Attachment{
		Pod:       model.PodID{Namespace: p.Namespace, Name: p.Name},
		Interface: fmt.Sprintf("%s%04d", model.PodInterfacePrefix, i),
		OFPort:    uint32(10 + i),
		MAC:       net.HardwareAddr{0x0a, 0, 0, 0, byte(i >> 8), byte(i)},
		Addresses: []netip.Addr{netip.MustParseAddr(p.Status.PodIP)},
	}
}

func port(number int) networkingv1.NetworkPolicyPort {
	tcp, value := corev1.ProtocolTCP, intstr.FromInt32(int32(number))
	return networkingv1.NetworkPolicyPort{Protocol: &tcp, Port: &value}
}
