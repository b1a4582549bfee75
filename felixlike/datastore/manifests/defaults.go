package manifests

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// setDefaults sets the API server's defaults that policy depends on.
func setDefaults(object metav1.Object) {
	switch o := object.(type) {
	case *corev1.Node:
		defaultNode(o)
	case *corev1.Namespace:
		defaultNamespace(o)
	case *corev1.Pod:
		defaultPod(o)
	case *networkingv1.NetworkPolicy:
		defaultPolicy(o)
	case *corev1.Service:
		defaultService(o)
	case *discoveryv1.EndpointSlice:
		defaultEndpointSlice(o)
	}
}

// defaultNode keeps podCIDR and podCIDRs alike.
func defaultNode(n *corev1.Node) {
	switch {
	case len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "":
		n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
	case len(n.Spec.PodCIDRs) > 0 && n.Spec.PodCIDR == "":
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	}
}

// defaultNamespace sets the label by which policies select a namespace by
// name; the API server does not let anyone choose another value.
func defaultNamespace(n *corev1.Namespace) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

func defaultPod(p *corev1.Pod) {
	switch {
	case len(p.Status.PodIPs) == 0 && p.Status.PodIP != "":
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	case len(p.Status.PodIPs) > 0 && p.Status.PodIP == "":
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for j := range containers[i].Ports {
				if port := &containers[i].Ports[j]; port.Protocol == "" {
					port.Protocol = corev1.ProtocolTCP
				}
			}
		}
	}
}

// defaultService keeps clusterIP and clusterIPs alike. Who sets no type and no address wants one allocated, which only an API server does.
func defaultService(s *corev1.Service) {
	spec := &s.Spec
	switch {
	case len(spec.ClusterIPs) == 0 && spec.ClusterIP != "":
		spec.ClusterIPs = []string{spec.ClusterIP}
	case len(spec.ClusterIPs) > 0 && spec.ClusterIP == "":
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	for i := range spec.Ports {
		if spec.Ports[i].Protocol == "" {
			spec.Ports[i].Protocol = corev1.ProtocolTCP
		}
	}
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		if s.Ports[i].Name == nil {
			s.Ports[i].Name = new(string)
		}
		if s.Ports[i].Protocol == nil {
			tcp := corev1.ProtocolTCP
			s.Ports[i].Protocol = &tcp
		}
	}
}

func defaultPolicy(p *networkingv1.NetworkPolicy) {
	for i := range p.Spec.Ingress {
		defaultPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPorts(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func defaultPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			tcp := corev1.ProtocolTCP
			ports[i].Protocol = &tcp
		}
	}
}
