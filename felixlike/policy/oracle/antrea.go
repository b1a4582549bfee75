package oracle

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// antreaPolicy is a policy of Antrea's API, of either kind.
type antreaPolicy struct {
	antrea.PolicySpec
	cluster         bool
	namespace, name string
}

func (c *Cluster) antreaPolicies() []antreaPolicy {
	var all []antreaPolicy
	for _, p := range c.Antrea.ClusterPolicies {
		all = append(all, antreaPolicy{p.Spec, true, "", p.Name})
	}
	for _, p := range c.Antrea.Policies {
		all = append(all, antreaPolicy{p.Spec, false, p.Namespace, p.Name})
	}
	return all
}

// antreaPlace returns the priority of the policy's tier and its own. Where one of them is not
// valid, the policy is not understood, and the value is the least.
func (c *Cluster) antreaPlace(p antreaPolicy) (tier int32, priority float64, understood bool) {
	understood = true
	fixed := map[string]int32{"": 250, "emergency": 50, "securityops": 100, "networkops": 150, "platform": 200, "application": 250, "baseline": 253}
	tier, known := fixed[strings.ToLower(p.Tier)]
	if !known {
		at := slices.IndexFunc(c.Antrea.Tiers, func(t *antrea.Tier) bool { return t.Name == p.Tier })
		if at < 0 || c.Antrea.Tiers[at].Spec.Priority < 0 || c.Antrea.Tiers[at].Spec.Priority >= 250 {
			understood = false
		} else {
			tier = c.Antrea.Tiers[at].Spec.Priority
		}
	}
	if p.Priority < 1 || p.Priority > 10000 {
		return tier, 0, false
	}
	return tier, p.Priority, understood
}

// askAntrea evaluates Antrea's policies, those of the baseline tier or the others: by the priority
// of the tier, then that of the policy; of equal ones ClusterNetworkPolicies before
// NetworkPolicies, then by namespace and name. The first rule that matches decides. The action is
// empty if no rule matches.
func (c *Cluster) askAntrea(baseline bool, q question) (RuleID, antrea.Action) {
	type placed struct {
		antreaPolicy
		tier       int32
		priority   float64
		understood bool
	}
	var all []placed
	for _, p := range c.antreaPolicies() {
		at := placed{antreaPolicy: p}
		at.tier, at.priority, at.understood = c.antreaPlace(p)
		if (at.tier == 253) == baseline {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b placed) int {
		first := map[bool]int{true: 0, false: 1}
		return cmp.Or(
			cmp.Compare(a.tier, b.tier), cmp.Compare(a.priority, b.priority),
			cmp.Compare(first[a.cluster], first[b.cluster]), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name),
		)
	})
	for _, p := range all {
		rules := p.Ingress
		if q.direction == model.Egress {
			rules = p.Egress
		}
		for i, r := range rules {
			if action := c.antreaAction(p.antreaPolicy, p.understood, r, q); action != "" {
				id := model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Namespace: p.namespace, Name: p.name}
				if baseline {
					id.Tier = model.TierBaseline
				}
				if !p.cluster {
					id.API = model.Antrea
				}
				return RuleID{id, fmt.Sprintf("%s[%d]", q.direction, i), model.RuleTitle(r.Name)}, action
			}
		}
	}
	return RuleID{}, ""
}

// IsAntreaSubject reports whether a rule of an object applies to a pod in a direction. Pods on a
// host's network are for the caller to leave out.
func (c *Cluster) IsAntreaSubject(o antrea.Object, d model.Direction, pod *corev1.Pod) bool {
	var p antreaPolicy
	switch o := o.(type) {
	case *antrea.ClusterNetworkPolicy:
		p = antreaPolicy{o.Spec, true, "", o.Name}
	case *antrea.NetworkPolicy:
		p = antreaPolicy{o.Spec, false, o.Namespace, o.Name}
	}
	rules := p.Ingress
	if d == model.Egress {
		rules = p.Egress
	}
	return slices.ContainsFunc(rules, func(r antrea.Rule) bool {
		applies, _ := c.antreaApplies(p, r, pod)
		return applies
	})
}

// antreaAction returns the action of a rule for the packet, or "" if the rule does not match. What
// is not understood fails closed. A rule with l7Protocols, and one without a known action, denies
// everything. In another rule that is not understood, an Allow matches nothing, and
// others deny everything. If the place of the policy, or where the rule applies, is not understood,
// an Allow matches nothing, and a Pass denies the packets that it matches. So does a Pass in the tier
// baseline: Antrea refuses it, because no tier follows.
func (c *Cluster) antreaAction(p antreaPolicy, placed bool, r antrea.Rule, q question) antrea.Action {
	applies, understood := c.antreaApplies(p, r, q.subject)
	head := placed && understood
	peers, wrong := r.From, r.To
	if q.direction == model.Egress {
		peers, wrong = r.To, r.From
	}
	valid := len(r.ToServices) == 0 && len(wrong) == 0
	isPeer := len(peers) == 0
	for _, peer := range peers {
		is, known := c.isAntreaPeer(p, peer, q)
		isPeer, valid = isPeer || is, valid && known
	}
	isPort := len(r.Ports) == 0 && len(r.Protocols) == 0
	for _, port := range r.Ports {
		is, known := isAntreaPort(port, q)
		isPort, valid = isPort || is, valid && known
	}
	for _, protocol := range r.Protocols {
		is, known := isAntreaProtocol(protocol, q.packet)
		isPort, valid = isPort || is, valid && known
	}
	switch {
	case !applies:
		return ""
	case len(r.L7Protocols) > 0 || !slices.Contains([]antrea.Action{antrea.Allow, antrea.Drop, antrea.Reject, antrea.Pass}, r.Action):
		return antrea.Drop
	case r.Action == antrea.Allow && !(valid && head):
		return ""
	case !valid:
		return antrea.Drop
	case !isPeer || !isPort:
		return ""
	case r.Action == antrea.Pass && (!head || strings.EqualFold(p.Tier, "baseline")):
		return antrea.Drop
	}
	return r.Action
}

// antreaApplies reports whether a rule applies to a pod, by its own appliedTo or that of the
// policy, and whether that is understood. If not, the rule applies to every pod that the policy
// may be about.
func (c *Cluster) antreaApplies(p antreaPolicy, r antrea.Rule, pod *corev1.Pod) (applies, understood bool) {
	entries := slices.Concat(p.AppliedTo, r.AppliedTo)
	understood = (len(p.AppliedTo) > 0) != (len(r.AppliedTo) > 0)
	for _, e := range entries {
		is, known := c.antreaSelects(p, e, pod)
		applies, understood = applies || is, understood && known
	}
	if !understood {
		if p.cluster {
			return c.inNamespaces(&metav1.LabelSelector{}, pod), false
		}
		return pod.Namespace == p.namespace, false
	}
	return applies, true
}

func (c *Cluster) antreaSelects(p antreaPolicy, e antrea.AppliedTo, pod *corev1.Pod) (selects, understood bool) {
	selectors := e.PodSelector != nil || e.NamespaceSelector != nil
	switch {
	case e.ServiceAccount != nil || e.Service != nil:
		return false, false
	case e.ExternalEntitySelector != nil || e.NodeSelector != nil:
		return false, !selectors && e.Group == "" // alone, it is no pod
	}
	if selectors == (e.Group != "") || !p.cluster && e.NamespaceSelector != nil {
		return false, false
	}
	if selectors {
		return c.antreaPods(p.namespace, e.PodSelector, e.NamespaceSelector, pod)
	}
	for _, spec := range c.antreaGroups(p, e.Group) {
		if spec == nil {
			continue // it does not exist, and selects no pod
		}
		if !antreaGroupUnderstood(*spec) || !p.cluster && spec.NamespaceSelector != nil {
			return false, false
		}
		if len(spec.IPBlocks) > 0 {
			continue // it is no pod
		}
		is, known := c.antreaPods(p.namespace, spec.PodSelector, spec.NamespaceSelector, pod)
		if !known {
			return false, false
		}
		selects = selects || is
	}
	return selects, true
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
	find := func(name string) *antrea.GroupSpec {
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
	spec := find(name)
	if spec == nil || !onlyChildren(*spec) {
		return []*antrea.GroupSpec{spec}
	}
	var all []*antrea.GroupSpec
	for _, child := range spec.ChildGroups {
		all = append(all, find(child))
	}
	return all
}

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
	cidr, err := netip.ParsePrefix(b.CIDR)
	if err != nil || cidr.Addr().Is4In6() {
		return false
	}
	return !slices.ContainsFunc(b.Except, func(text string) bool {
		except, err := netip.ParsePrefix(text)
		return err != nil || except.Addr().Is4In6() || !cidr.Contains(except.Addr()) || except.Bits() <= cidr.Bits()
	})
}

func inAntreaBlock(b antrea.IPBlock, a netip.Addr) bool {
	return netip.MustParsePrefix(b.CIDR).Contains(a) && !slices.ContainsFunc(b.Except, func(text string) bool {
		return netip.MustParsePrefix(text).Contains(a)
	})
}

// isAntreaPeer reports whether a peer is the packet's other end, and whether the peer is
// understood.
func (c *Cluster) isAntreaPeer(p antreaPolicy, peer antrea.Peer, q question) (is, understood bool) {
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
		return slices.ContainsFunc(c.Nodes, func(n *corev1.Node) bool {
			return matches(peer.NodeSelector, n.Labels) && slices.ContainsFunc(n.Status.Addresses, func(one corev1.NodeAddress) bool {
				ip, err := netip.ParseAddr(one.Address)
				return err == nil && ip.Unmap() == q.peer
			})
		}), true
	case peer.Namespaces != nil:
		self := *peer.Namespaces
		if !p.cluster || peer.NamespaceSelector != nil || self.Match != "Self" || len(self.SameLabels) > 0 {
			return false, false
		}
		return c.antreaPods(q.subject.Namespace, peer.PodSelector, nil, q.peerPod)
	case selectors:
		return c.antreaPods(p.namespace, peer.PodSelector, peer.NamespaceSelector, q.peerPod)
	}
	for _, spec := range c.antreaGroups(p, peer.Group) {
		if spec == nil || !antreaGroupUnderstood(*spec) {
			return false, false
		}
		if len(spec.IPBlocks) > 0 {
			is = is || slices.ContainsFunc(spec.IPBlocks, func(b antrea.IPBlock) bool { return inAntreaBlock(b, q.peer) })
			continue
		}
		selects, known := c.antreaPods(p.namespace, spec.PodSelector, spec.NamespaceSelector, q.peerPod)
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
