package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// trimmed returns the encoding of a typed object that was trimmed. Maps are
// encoded in the order of their keys: equal objects have equal encodings.
func trimmed[T any, P interface {
	*T
	Marshal() ([]byte, error)
}](trim func(*T) T,
) func(runtime.Object) ([]byte, error) {
	return func(o runtime.Object) ([]byte, error) {
		typed, ok := o.(any).(*T)
		if !ok {
			return nil, fmt.Errorf("got a %T", o)
		}
		left := trim(typed)
		return P(&left).Marshal()
	}
}

// bareMeta keeps an object's name and labels.
func bareMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, Labels: m.Labels}
}

// trimNode keeps a node's age, labels, addresses, pod CIDRs and public key.
func trimNode(n *corev1.Node) corev1.Node {
	t := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, CreationTimestamp: n.CreationTimestamp, Labels: n.Labels},
		Spec:       corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
	}
	if key, ok := n.Annotations[model.PublicKeyAnnotation]; ok {
		t.Annotations = map[string]string{model.PublicKeyAnnotation: key}
	}
	return t
}

func trimNamespace(n *corev1.Namespace) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: bareMeta(&n.ObjectMeta)}
}

// staticUID is the annotation with the UID by which the kubelet knows a static pod,
// and by which the runtime asks for its network. The object's own UID is another.
const staticUID = "kubernetes.io/config.hash"

// trimPod keeps a pod's labels, UIDs, node and network, the ports that have a name,
// and of its phase whether it is done. Pods on a host's network are in no group.
func trimPod(p *corev1.Pod) corev1.Pod {
	t := corev1.Pod{
		ObjectMeta: bareMeta(&p.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
	}
	if uid := p.Annotations[staticUID]; uid != "" {
		t.Annotations = map[string]string{staticUID: uid}
	}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		t.Status.Phase = p.Status.Phase
	}
	if p.Spec.HostNetwork {
		return t
	}
	t.Spec.Containers, t.Spec.InitContainers = trimContainers(p.Spec.Containers), trimContainers(p.Spec.InitContainers)
	t.Status.PodIP, t.Status.PodIPs = p.Status.PodIP, p.Status.PodIPs
	return t
}

// trimContainers keeps the containers with named ports, of all types, and their places in the list: problems
// name these places.
func trimContainers(containers []corev1.Container) []corev1.Container {
	named := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name != "" })
	}
	var kept []corev1.Container
	for i, c := range containers {
		if named(c) {
			kept = append(kept, make([]corev1.Container, i-len(kept))...)
			kept = append(kept, corev1.Container{RestartPolicy: c.RestartPolicy, Ports: c.Ports})
		}
	}
	return kept
}

// trimService keeps what a node needs to serve a Service.
func trimService(s *corev1.Service) corev1.Service {
	t := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, CreationTimestamp: s.CreationTimestamp}}
	from := &s.Spec
	t.Spec = corev1.ServiceSpec{
		Type: from.Type, Ports: slices.Clone(from.Ports), ClusterIP: from.ClusterIP, ClusterIPs: from.ClusterIPs, ExternalIPs: from.ExternalIPs,
		SessionAffinity: from.SessionAffinity, SessionAffinityConfig: from.SessionAffinityConfig, LoadBalancerSourceRanges: from.LoadBalancerSourceRanges,
		ExternalTrafficPolicy: from.ExternalTrafficPolicy, InternalTrafficPolicy: from.InternalTrafficPolicy, HealthCheckNodePort: from.HealthCheckNodePort,
	}
	for i := range t.Spec.Ports {
		t.Spec.Ports[i].AppProtocol, t.Spec.Ports[i].TargetPort = nil, intstr.IntOrString{} // EndpointSlices have the target
	}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		t.Status.LoadBalancer.Ingress = append(t.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ingress.IP, IPMode: ingress.IPMode})
	}
	return t
}

// trimEndpointSlice keeps the addresses, their conditions, nodes and hints, and the ports.
func trimEndpointSlice(s *discoveryv1.EndpointSlice) discoveryv1.EndpointSlice {
	t := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID}, AddressType: s.AddressType, Ports: slices.Clone(s.Ports)}
	t.Labels = map[string]string{discoveryv1.LabelServiceName: s.Labels[discoveryv1.LabelServiceName]}
	for i := range t.Ports {
		t.Ports[i].AppProtocol = nil
	}
	for _, e := range s.Endpoints {
		t.Endpoints = append(t.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, NodeName: e.NodeName, Hints: e.Hints})
	}
	return t
}

func trimServiceCIDR(c *networkingv1.ServiceCIDR) networkingv1.ServiceCIDR {
	return networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: c.Name, UID: c.UID}, Spec: c.Spec}
}

// trimPolicy keeps all of a NetworkPolicy that may mean something: everything
// but its metadata and its status, which some older servers write. Of the metadata it keeps
// the annotations that have a meaning for policy.
func trimPolicy(o runtime.Object) ([]byte, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("got a %T", o)
	}
	fields := map[string]any{}
	for name, value := range u.Object {
		if name != "metadata" && name != "status" {
			fields[name] = value
		}
	}
	kept := map[string]string{}
	for _, name := range model.PolicyAnnotations() {
		if text, found := u.GetAnnotations()[name]; found {
			kept[name] = text
		}
	}
	metadata := map[string]any{}
	if len(kept) > 0 {
		metadata["annotations"] = kept
	}
	// The oldest Egress of an address has it.
	if u.GetKind() == antrea.KindEgress.String() && !u.GetCreationTimestamp().Time.IsZero() {
		metadata["creationTimestamp"] = u.GetCreationTimestamp()
	}
	if len(metadata) > 0 {
		fields["metadata"] = metadata
	}
	return json.Marshal(fields)
}
