package manifests

import (
	corev1 "k8s.io/api/core/v1"
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
