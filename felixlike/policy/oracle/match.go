package oracle

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/felixlike/felixlike/model"
)

// PodAt returns the pod that has the address and can be selected: not in the
// host's network, not finished.
func (c *Cluster) PodAt(a netip.Addr) *corev1.Pod {
	for _, pod := range c.Pods {
		if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			if parsed, err := netip.ParseAddr(ip.IP); err == nil && parsed.Unmap() == a {
				return pod
			}
		}
	}
	return nil
}

// ownNode reports whether the address is one of the pod's own node.
func (c *Cluster) ownNode(pod *corev1.Pod, a netip.Addr) bool {
	return pod != nil && slices.ContainsFunc(c.Nodes, func(n *corev1.Node) bool {
		return n.Name == pod.Spec.NodeName && has(n, a)
	})
}

// has reports whether the address is one of the node: an InternalIP, or the gateway,
// which is the first host address of a podCIDR.
func has(node *corev1.Node, a netip.Addr) bool {
	for _, address := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(address.Address); address.Type == corev1.NodeInternalIP && err == nil && ip == a {
			return true
		}
	}
	for _, cidr := range append(slices.Clone(node.Spec.PodCIDRs), node.Spec.PodCIDR) {
		if p, err := netip.ParsePrefix(cidr); err == nil && p.Masked().Addr().Next() == a {
			return true
		}
	}
	return false
}

// tunnelEnd reports whether the packet goes to the end of a node's tunnel.
func (c *Cluster) tunnelEnd(p Packet) bool {
	encapsulated := p.Protocol == model.GRE || p.Protocol == model.UDP && slices.Contains(model.TunnelPorts(), p.Port)
	return encapsulated && slices.ContainsFunc(c.Nodes, func(n *corev1.Node) bool { return has(n, p.Destination) })
}

// targets reports whether the policy applies to the pod. An invalid selector selects the
// whole namespace.
func targets(policy *networkingv1.NetworkPolicy, pod *corev1.Pod) bool {
	if pod.Namespace != policy.Namespace {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	return err != nil || selector.Matches(labels.Set(pod.Labels))
}

// anyPeer reports whether one of the peers of a policy of a namespace is the packet's other end. An empty list matches
// every peer.
func (q question) anyPeer(peers []networkingv1.NetworkPolicyPeer, namespace string) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock != nil {
			return peer.PodSelector == nil && peer.NamespaceSelector == nil && inBlock(peer.IPBlock, q.peer)
		}
		return q.peerPod != nil && q.cluster.selects(peer, namespace, q.peerPod)
	})
}

func (c *Cluster) selects(peer networkingv1.NetworkPolicyPeer, namespace string, pod *corev1.Pod) bool {
	if peer.PodSelector == nil && peer.NamespaceSelector == nil {
		return false
	}
	if peer.PodSelector != nil && !matches(peer.PodSelector, pod.Labels) {
		return false
	}
	if peer.NamespaceSelector == nil {
		return pod.Namespace == namespace
	}
	return c.inNamespaces(peer.NamespaceSelector, pod)
}

func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set))
}

// parseCIDR parses a prefix as an API server does, which ignores leading zeros of decimal numbers.
func parseCIDR(text string) (netip.Prefix, error) {
	if _, network, err := netutils.ParseCIDRSloppy(text); err == nil && !strings.Contains(text, ":") {
		text = network.String()
	}
	return netip.ParsePrefix(text)
}

// holds reports whether a valid prefix holds an address.
func holds(cidr string, a netip.Addr) bool {
	p, err := parseCIDR(cidr)
	return err == nil && p.Contains(a)
}

// inBlock reports whether the address is in the block and in none of its
// exceptions. A block of which any part is wrong holds nothing.
func inBlock(block *networkingv1.IPBlock, a netip.Addr) bool {
	cidr, err := parseCIDR(block.CIDR)
	if err != nil || cidr.Addr().Is4In6() {
		return false
	}
	in := cidr.Contains(a)
	for _, e := range block.Except {
		except, err := parseCIDR(e)
		if err != nil || except.Addr().Is4In6() || !cidr.Contains(except.Addr()) || except.Bits() <= cidr.Bits() {
			return false
		}
		in = in && !except.Contains(a)
	}
	return in
}

// anyPort reports whether one of the ports is the packet's. An empty list matches every
// protocol and port.
func anyPort(ports []networkingv1.NetworkPolicyPort, destination *corev1.Pod, p Packet) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(port networkingv1.NetworkPolicyPort) bool {
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		if number, err := model.ParseProtocol(string(protocol)); err != nil || number != p.Protocol {
			return false
		}
		switch {
		case port.Port == nil:
			return port.EndPort == nil
		case port.Port.Type == intstr.String:
			return port.EndPort == nil && validName(port.Port.StrVal) && declared(destination, port.Port.StrVal, protocol, p.Port)
		case port.Port.Type != intstr.Int:
			return false
		}
		first, last := port.Port.IntVal, port.Port.IntVal
		if port.EndPort != nil {
			last = *port.EndPort
		}
		return 1 <= first && first <= last && last <= 65535 && first <= int32(p.Port) && int32(p.Port) <= last
	})
}

// declared reports whether a long-lived container of the pod declares the
// port under the name.
func declared(pod *corev1.Pod, name string, protocol corev1.Protocol, number uint16) bool {
	if pod == nil {
		return false
	}
	containers := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			same := p.Protocol == protocol || p.Protocol == "" && protocol == corev1.ProtocolTCP
			return p.Name == name && same && p.ContainerPort == int32(number)
		})
	})
}

func validName(name string) bool { return len(validation.IsValidPortName(name)) == 0 }

// staged reports whether a policy with these annotations judges nothing because it is staged.
func (c *Cluster) staged(annotations map[string]string) bool {
	return !c.EnforceStaged && annotations[enforceAnnotation] == "no"
}
