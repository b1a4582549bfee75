package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// onlyChildren reports whether a group has children and nothing else.
func onlyChildren(s antrea.GroupSpec) bool {
	return len(s.ChildGroups) > 0 && len(s.IPBlocks) == 0 && s.PodSelector == nil && s.NamespaceSelector == nil &&
		s.ServiceReference == nil && s.ExternalEntitySelector == nil
}

// antreaGroupUnderstood reports whether a group without children has one kind of content, and
// that is valid.
func antreaGroupUnderstood(s antrea.GroupSpec) bool {
	if s.ServiceReference != nil || s.ExternalEntitySelector != nil || len(s.ChildGroups) > 0 {
		return false
	}
	pods := s.PodSelector != nil || s.NamespaceSelector != nil
	return pods != (len(s.IPBlocks) > 0) && !slices.ContainsFunc(s.IPBlocks, func(b antrea.IPBlock) bool { return !antreaBlockUnderstood(b) })
}

// antreaBlockUnderstood reports whether a block is valid: its exceptions are strict parts of it.
func antreaBlockUnderstood(b antrea.IPBlock) bool {
	cidr, err := parseCIDR(b.CIDR)
	if err != nil || cidr.Addr().Is4In6() {
		return false
	}
	return !slices.ContainsFunc(b.Except, func(text string) bool {
		except, err := parseCIDR(text)
		return err != nil || except.Addr().Is4In6() || !cidr.Contains(except.Addr()) || except.Bits() <= cidr.Bits()
	})
}

func inAntreaBlock(b antrea.IPBlock, a netip.Addr) bool {
	return holds(b.CIDR, a) && !slices.ContainsFunc(b.Except, func(text string) bool {
		return holds(text, a)
	})
}

// isAntreaPeer reports whether a peer is the packet's other end, and whether the peer is
// understood.
func (q question) isAntreaPeer(p antreaPolicy, peer antrea.Peer) (is, understood bool) {
	selectors := peer.PodSelector != nil || peer.NamespaceSelector != nil || peer.Namespaces != nil
	set := 0
	for _, one := range []bool{selectors, peer.IPBlock != nil, peer.Group != "", peer.NodeSelector != nil} {
		if one {
			set++
		}
	}
	if set != 1 || peer.FQDN != "" || peer.ServiceAccount != nil || peer.ExternalEntitySelector != nil || peer.Scope != "" && peer.Scope != "Cluster" {
		return false, false
	}
	switch {
	case peer.IPBlock != nil:
		if !antreaBlockUnderstood(*peer.IPBlock) {
			return false, false
		}
		return inAntreaBlock(*peer.IPBlock, q.peer), true
	case peer.NodeSelector != nil:
		if _, err := metav1.LabelSelectorAsSelector(peer.NodeSelector); err != nil {
			return false, false
		}
		return slices.ContainsFunc(q.cluster.Nodes, func(n *corev1.Node) bool {
			return matches(peer.NodeSelector, n.Labels) && slices.ContainsFunc(n.Status.Addresses, func(one corev1.NodeAddress) bool {
				ip, err := netip.ParseAddr(one.Address)
				return err == nil && ip.Unmap() == q.peer
			})
		}), true
	case peer.Namespaces != nil:
		self := *peer.Namespaces
		if !p.cluster || peer.NamespaceSelector != nil || self.Match != "Self" && (self.Match != "" || len(self.SameLabels) == 0) || self.Match != "" && len(self.SameLabels) > 0 {
			return false, false
		}
		if len(self.SameLabels) > 0 {
			own := q.cluster.namespaceLabels(q.subject.Namespace)
			is, understood = q.cluster.antreaPods("", peer.PodSelector, nil, q.peerPod)
			for _, key := range self.SameLabels {
				if len(validation.IsQualifiedName(key)) > 0 {
					return false, false
				}
				value, has := own[key]
				is = is && has && matches(&metav1.LabelSelector{MatchLabels: map[string]string{key: value}}, q.cluster.namespaceLabels(q.peerPod.Namespace))
			}
			return is, understood
		}
		return q.cluster.antreaPods(q.subject.Namespace, peer.PodSelector, nil, q.peerPod)
	case selectors:
		return q.cluster.antreaPods(p.namespace, peer.PodSelector, peer.NamespaceSelector, q.peerPod)
	}
	for _, spec := range q.cluster.antreaGroups(p, peer.Group) {
		if spec == nil || !antreaGroupUnderstood(*spec) {
			return false, false
		}
		if len(spec.IPBlocks) > 0 {
			is = is || slices.ContainsFunc(spec.IPBlocks, func(b antrea.IPBlock) bool { return inAntreaBlock(b, q.peer) })
			continue
		}
		selects, known := q.cluster.antreaPods(p.namespace, spec.PodSelector, spec.NamespaceSelector, q.peerPod)
		if !known {
			return false, false
		}
		is = is || selects
	}
	return is, true
}

// isAntreaPort reports whether the packet goes to a port, and whether the port is understood.
func isAntreaPort(port antrea.Port, q question) (is, understood bool) {
	if port.SourcePort != nil || port.SourceEndPort != nil {
		return false, false
	}
	if q.node != nil && q.direction == model.Ingress && port.Port != nil && port.Port.Type == intstr.String {
		return false, false // a node has no named ports
	}
	one := networkingv1.NetworkPolicyPort{Protocol: port.Protocol, Port: port.Port, EndPort: port.EndPort}
	return anyPort([]networkingv1.NetworkPolicyPort{one}, q.destination, q.packet), validPort(one)
}

// isAntreaProtocol reports whether the packet is a message that the protocol names, and whether the
// protocol is understood. The numbers are those of ICMP in IPv4, and those of ICMPv6 in IPv6.
func isAntreaProtocol(p antrea.Protocol, packet Packet) (is, understood bool) {
	if p.ICMP == nil || p.IGMP != nil {
		return false, false
	}
	kind, code := p.ICMP.Type, p.ICMP.Code
	switch {
	case kind != nil && (*kind < 0 || *kind > 254), code != nil && (kind == nil || *code < 0 || *code > 255):
		return false, false
	case packet.Protocol != model.ICMP && packet.Protocol != model.ICMPv6:
		return false, true
	}
	sameType := kind == nil || *kind == int32(packet.Port/256)
	sameCode := code == nil || *code == int32(packet.Port%256)
	return sameType && sameCode, true
}

// validPort reports whether a port is valid: a protocol, and a number, a range or a name.
func validPort(port networkingv1.NetworkPolicyPort) bool {
	if port.Protocol != nil {
		if _, err := model.ParseProtocol(string(*port.Protocol)); err != nil {
			return false
		}
	}
	switch {
	case port.Port == nil:
		return port.EndPort == nil
	case port.Port.Type == intstr.String:
		return port.EndPort == nil && validName(port.Port.StrVal)
	}
	last := port.Port.IntVal
	if port.EndPort != nil {
		last = *port.EndPort
	}
	return port.Port.Type == intstr.Int && 1 <= port.Port.IntVal && port.Port.IntVal <= last && last <= 65535
}

// antreaPolicy is a policy of Antrea's API, of either kind.
type antreaPolicy struct {
	antrea.PolicySpec
	cluster         bool
	namespace, name string
	annotations     map[string]string
}

// antreaPods reports whether selectors, of which one may be nil, select a pod, which may be nil
// too. Without a namespaceSelector that is in the namespace, or in all namespaces if it is empty.
func (c *Cluster) antreaPods(namespace string, pods, namespaces *metav1.LabelSelector, pod *corev1.Pod) (selects, understood bool) {
	for _, s := range []*metav1.LabelSelector{pods, namespaces} {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			return false, false
		}
	}
	if pod == nil {
		return false, true
	}
	switch {
	case namespaces != nil:
		selects = c.inNamespaces(namespaces, pod)
	case namespace != "":
		selects = pod.Namespace == namespace
	default:
		selects = c.inNamespaces(&metav1.LabelSelector{}, pod)
	}
	return selects && (pods == nil || matches(pods, pod.Labels)), true
}

// antreaGroups returns the contents of the group that a policy names: its own, or those of its
// children. One that does not exist is nil.
func (c *Cluster) antreaGroups(p antreaPolicy, name string) []*antrea.GroupSpec {
	spec := c.antreaGroup(p, name)
	if spec == nil || !onlyChildren(*spec) {
		return []*antrea.GroupSpec{spec}
	}
	var all []*antrea.GroupSpec
	for _, child := range spec.ChildGroups {
		all = append(all, c.antreaGroup(p, child))
	}
	return all
}

// antreaGroup returns the content of a group of a policy's own kind, or nil.
func (c *Cluster) antreaGroup(p antreaPolicy, name string) *antrea.GroupSpec {
	for _, g := range c.Antrea.ClusterGroups {
		if p.cluster && g.Name == name {
			return &g.Spec
		}
	}
	for _, g := range c.Antrea.Groups {
		if !p.cluster && g.Namespace == p.namespace && g.Name == name {
			return &g.Spec
		}
	}
	return nil
}
