package preview

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Kinds of policies.
const (
	networkPolicy = "NetworkPolicy"
	clusterPolicy = "ClusterNetworkPolicy"
)

// anyPolicy is a NetworkPolicy, a ClusterNetworkPolicy, an object of Antrea's API, or none.
type anyPolicy struct {
	network *networkingv1.NetworkPolicy
	cluster *v1alpha2.ClusterNetworkPolicy
	antrea  antrea.Object
	// refersTo are the tiers and groups that a policy of Antrea's API may refer to.
	refersTo *antrea.Objects
	// projects are set for an EgressNetworkPolicy.
	projects *projects
}

// WithoutPart returns the name of the object of a policy, from the name of the policy or of a part of it, as PolicyID.String has it.
func WithoutPart(name string) string {
	if i := strings.IndexAny(name, "#@"); i >= 0 {
		return name[:i]
	}
	return name
}

// ParsePolicy reads the name of a policy, as PolicyID.String has it. The kind's API group may be left out where no kind of
// Kubernetes has the same name, and be there for those of Kubernetes.
func ParsePolicy(name string) (model.ObjectRef, error) {
	parts := strings.Split(WithoutPart(name), "/")
	parts[0] = strings.TrimSuffix(strings.TrimSuffix(parts[0], "."+v1alpha2.GroupName), "."+networkingv1.GroupName)
	var all []string
	for _, form := range []model.ObjectRef{
		{Kind: networkPolicy, Namespace: "NAMESPACE", Name: "NAME"},
		{Kind: clusterPolicy, Name: "NAME"},
		antrea.ID{Kind: antrea.KindNetworkPolicy, Namespace: "NAMESPACE", Name: "NAME"}.Ref(),
		antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "NAME"}.Ref(),
		antrea.ID{Kind: antrea.KindNetNamespace, Name: "NAME"}.Ref(),
		antrea.ID{Kind: antrea.KindEgressNetworkPolicy, Namespace: "NAMESPACE", Name: "NAME"}.Ref(),
	} {
		text := form.String()
		all = append(all, text)
		if len(parts) != strings.Count(text, "/")+1 || slices.Contains(parts, "") || !strings.HasPrefix(strings.ToLower(form.Kind)+".", parts[0]+".") {
			continue
		}
		if form.Name = parts[len(parts)-1]; form.Namespace != "" {
			form.Namespace = parts[1]
		}
		return form, nil
	}
	return model.ObjectRef{}, fmt.Errorf("%q: must be %s", name, strings.Join(all, ", "))
}

// policiesOf returns the policies of all kinds.
func policiesOf(o control.Objects) []anyPolicy {
	var all []anyPolicy
	for _, p := range o.Policies {
		all = append(all, anyPolicy{network: p})
	}
	for _, p := range o.ClusterPolicies {
		all = append(all, anyPolicy{cluster: p})
	}
	return append(all, antreaPolicies(o.Antrea)...)
}

// IsPolicyKind reports whether problems of manifests with an object of that kind may be about policies: it is one, or may have been one.
func IsPolicyKind(kind string) bool {
	return slices.ContainsFunc([]string{"NetworkPolicy", "." + antrea.GroupName, "." + antrea.NetNamespaceGroupName, "List"},
		func(end string) bool { return strings.HasSuffix(kind, end) }) || kind == "document" || kind == "file"
}

func (p anyPolicy) none() bool { return p == anyPolicy{} }

func (p anyPolicy) name() model.ObjectRef {
	switch {
	case p.cluster != nil:
		return model.ObjectRef{Kind: clusterPolicy, Name: p.cluster.Name}
	case p.antrea != nil:
		return p.antrea.ID().Ref()
	}
	return model.ObjectRef{Kind: networkPolicy, Namespace: p.network.Namespace, Name: p.network.Name}
}

// isPolicy reports that it is a policy, not a tier or a group.
func (p anyPolicy) isPolicy() bool { return p.antrea == nil || isAntreaPolicy(p.antrea) }

// tier names the tier, if policies of the kind have one.
func (p anyPolicy) tier() string {
	switch {
	case p.cluster != nil:
		return string(p.cluster.Spec.Tier)
	case p.antrea != nil && compile.AntreaSpec(p.antrea) != nil:
		return cmp.Or(compile.AntreaSpec(p.antrea).Tier, "application")
	}
	return ""
}

func comparePolicies(a, b anyPolicy) int { return a.name().Compare(b.name()) }

func (p anyPolicy) equal(o anyPolicy) bool {
	switch {
	case p.cluster != nil:
		return equality.Semantic.DeepEqual(p.cluster.Spec, o.cluster.Spec) && compile.Staged(p.cluster.Annotations) == compile.Staged(o.cluster.Annotations)
	case p.antrea != nil:
		return equality.Semantic.DeepEqual(antreaContent(p.antrea), antreaContent(o.antrea))
	}
	return equality.Semantic.DeepEqual(p.network.Spec, o.network.Spec) && compile.Staged(p.network.Annotations) == compile.Staged(o.network.Annotations)
}

// set adds a policy to an engine, with the tiers and groups that it may refer to. It returns the
// problems that the engine finds in it.
func (p anyPolicy) set(e *policy.Engine) []model.Problem {
	switch {
	case p.cluster != nil:
		return e.SetClusterNetworkPolicy(p.cluster)
	case p.antrea != nil:
		p.setAntrea(e)
		return slices.DeleteFunc(e.AntreaProblems(), func(problem model.Problem) bool { return problem.Object != p.antrea.ID().Ref() })
	}
	return e.SetNetworkPolicy(p.network)
}

// addPolicies adds policies to the cluster of an oracle, each once. There may be thousands: no list is copied for each of them.
func addPolicies(c *oracle.Cluster, policies []anyPolicy) {
	var of *projects
	for _, p := range policies {
		switch {
		case p.cluster != nil:
			c.ClusterPolicies = append(c.ClusterPolicies, p.cluster)
			continue
		case p.antrea == nil:
			c.Policies = append(c.Policies, p.network)
			continue
		}
		c.Antrea.Tiers, c.Antrea.ClusterGroups, c.Antrea.Groups = p.refersTo.Tiers, p.refersTo.ClusterGroups, p.refersTo.Groups
		switch o := p.antrea.(type) {
		case *antrea.ClusterNetworkPolicy:
			c.Antrea.ClusterPolicies = append(c.Antrea.ClusterPolicies, o)
		case *antrea.NetworkPolicy:
			c.Antrea.Policies = append(c.Antrea.Policies, o)
		case *antrea.NetNamespace:
			c.Antrea.NetNamespaces = append(c.Antrea.NetNamespaces, o)
		case *antrea.EgressNetworkPolicy:
			of = p.projects
		}
	}
	if of != nil { // they have all NetNamespaces and EgressNetworkPolicies
		c.Antrea.NetNamespaces, c.Antrea.EgressPolicies = of.netNamespaces, of.egressPolicies
	}
}

// about reports whether a policy applies in a direction.
func (p anyPolicy) about(d model.Direction) bool {
	switch {
	case p.antrea != nil:
		return antreaAbout(p.antrea, d)
	case p.cluster != nil && d == model.Ingress:
		return len(p.cluster.Spec.Ingress) > 0
	case p.cluster != nil:
		return len(p.cluster.Spec.Egress) > 0
	case d == model.Ingress:
		return about(p.network, networkingv1.PolicyTypeIngress)
	}
	return about(p.network, networkingv1.PolicyTypeEgress)
}

// rules returns the policy as verdicts name it, and the titles of its rules of a direction.
func (p anyPolicy) rules(d model.Direction) (id model.PolicyID, titles []string) {
	switch {
	case isNetNamespace(p.antrea): // isolation is no rule that somebody wrote
	case isEgressPolicy(p.antrea): // its rules that allow decide nothing: the packet goes on
	case p.antrea != nil:
		id = model.PolicyID{Tier: model.TierAdmin, API: model.Antrea, Namespace: p.antrea.ID().Namespace, Name: p.antrea.ID().Name}
		if strings.EqualFold(compile.AntreaSpec(p.antrea).Tier, "baseline") {
			id.Tier = model.TierBaseline
		}
		if id.Namespace == "" {
			id.API = model.AntreaCluster
		}
		for _, r := range directed(p.antrea, d) {
			titles = append(titles, r.Name)
		}
	case p.cluster != nil:
		id = model.PolicyID{Tier: model.TierAdmin, Name: p.cluster.Name}
		if p.cluster.Spec.Tier == v1alpha2.BaselineTier {
			id.Tier = model.TierBaseline
		}
		for _, r := range p.cluster.Spec.Ingress {
			if d == model.Ingress {
				titles = append(titles, r.Name)
			}
		}
		for _, r := range p.cluster.Spec.Egress {
			if d == model.Egress {
				titles = append(titles, r.Name)
			}
		}
	default:
		id = model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: p.network.Namespace, Name: p.network.Name}
		rules := len(p.network.Spec.Ingress)
		if d == model.Egress {
			rules = len(p.network.Spec.Egress)
		}
		titles = make([]string, rules)
	}
	return id, titles
}

// selects reports whether a policy may apply to a pod of a namespace, nil if that is not
// known. A NetworkPolicy that cannot be understood applies to its whole namespace, a
// ClusterNetworkPolicy to all pods, as the oracle has it.
func (p anyPolicy) selects(pod *corev1.Pod, namespace *corev1.Namespace) bool {
	var namespaces []*corev1.Namespace
	if namespace != nil {
		namespaces = append(namespaces, namespace)
	}
	switch {
	case p.none():
		return false
	case p.antrea != nil:
		return p.antreaSelects(pod, namespaces)
	case p.cluster != nil:
		c := oracle.Cluster{Namespaces: namespaces}
		return c.IsSubject(p.cluster, pod)
	case p.network.Namespace != pod.Namespace:
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(&p.network.Spec.PodSelector)
	return err != nil || s.Matches(labels.Set(pod.Labels))
}

// podSelectors lists the selectors of pods by their labels, those of peers included.
func (p anyPolicy) podSelectors() []*metav1.LabelSelector {
	var all []*metav1.LabelSelector
	if p.antrea != nil {
		return p.antreaPodSelectors()
	}
	if p.cluster == nil {
		all = append(all, &p.network.Spec.PodSelector)
		for _, peer := range peers(p.network) {
			if peer.PodSelector != nil {
				all = append(all, peer.PodSelector)
			}
		}
		return all
	}
	add := func(pods *v1alpha2.NamespacedPod) {
		if pods != nil {
			all = append(all, &pods.PodSelector)
		}
	}
	add(p.cluster.Spec.Subject.Pods)
	for _, r := range p.cluster.Spec.Ingress {
		for _, peer := range r.From {
			add(peer.Pods)
		}
	}
	for _, r := range p.cluster.Spec.Egress {
		for _, peer := range r.To {
			add(peer.Pods)
		}
	}
	return all
}

// namespaceSelectors lists the selectors of namespaces by their labels.
func (p anyPolicy) namespaceSelectors() []*metav1.LabelSelector {
	var all []*metav1.LabelSelector
	if p.antrea != nil {
		return p.antreaNamespaceSelectors()
	}
	if p.cluster == nil {
		for _, peer := range peers(p.network) {
			if peer.NamespaceSelector != nil {
				all = append(all, peer.NamespaceSelector)
			}
		}
		return all
	}
	add := func(namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod) {
		if namespaces != nil {
			all = append(all, namespaces)
		}
		if pods != nil {
			all = append(all, &pods.NamespaceSelector)
		}
	}
	add(p.cluster.Spec.Subject.Namespaces, p.cluster.Spec.Subject.Pods)
	for _, r := range p.cluster.Spec.Ingress {
		for _, peer := range r.From {
			add(peer.Namespaces, peer.Pods)
		}
	}
	for _, r := range p.cluster.Spec.Egress {
		for _, peer := range r.To {
			add(peer.Namespaces, peer.Pods)
		}
	}
	return all
}

// namesPorts reports whether a rule has the name of a port.
func (p anyPolicy) namesPorts() bool {
	if p.cluster != nil {
		return slices.ContainsFunc(protocolsOf(p.cluster), func(one v1alpha2.ClusterNetworkPolicyProtocol) bool { return one.DestinationNamedPort != "" })
	}
	ports := antreaPorts(p.antrea)
	if p.network != nil {
		ports = portsOf(p.network)
	}
	return slices.ContainsFunc(ports, func(port networkingv1.NetworkPolicyPort) bool {
		return port.Port != nil && port.Port.Type == intstr.String
	})
}

// prefixes lists the blocks that rules name, exceptions among them.
func (p anyPolicy) prefixes() []string {
	var all []string
	if p.antrea != nil {
		return p.antreaPrefixes()
	}
	if p.cluster != nil {
		for _, r := range p.cluster.Spec.Egress {
			for _, peer := range r.To {
				for _, n := range peer.Networks {
					all = append(all, string(n))
				}
			}
		}
		return all
	}
	for _, peer := range peers(p.network) {
		if peer.IPBlock != nil {
			all = append(append(all, peer.IPBlock.CIDR), peer.IPBlock.Except...)
		}
	}
	return all
}

// namesNodes reports whether a rule has nodes as peers.
func (p anyPolicy) namesNodes() bool {
	if p.antrea != nil {
		return antreaNamesNodes(p.antrea)
	}
	return p.cluster != nil && slices.ContainsFunc(p.cluster.Spec.Egress, func(r v1alpha2.ClusterNetworkPolicyEgressRule) bool {
		return slices.ContainsFunc(r.To, func(peer v1alpha2.ClusterNetworkPolicyEgressPeer) bool { return peer.Nodes != nil })
	})
}

// cutPorts cuts where the ports of rules begin and end.
func (p anyPolicy) cutPorts(to *corev1.Pod, cut cutter) {
	if p.cluster == nil {
		ports := antreaPorts(p.antrea)
		if p.network != nil {
			ports = portsOf(p.network)
		}
		for _, port := range ports {
			cutPort(port, to, cut)
		}
		cutMessages(p.antrea, cut)
		return
	}
	for _, protocol := range protocolsOf(p.cluster) {
		cutProtocol(protocol, to, cut)
	}
}

// nodeAddresses lists all addresses of nodes as blocks: a rule may have nodes as peers.
func nodeAddresses(nodes []*corev1.Node) []string {
	var all []string
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil {
				all = append(all, netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()).String())
			}
		}
	}
	return all
}

// about reports whether the policy isolates in the direction. By default it isolates for
// ingress, and for egress if it has egress rules.
func about(p *networkingv1.NetworkPolicy, t networkingv1.PolicyType) bool {
	types := p.Spec.PolicyTypes
	if len(types) == 0 {
		return t == networkingv1.PolicyTypeIngress || len(p.Spec.Egress) > 0
	}
	return slices.Contains(types, t)
}

func peers(p *networkingv1.NetworkPolicy) []networkingv1.NetworkPolicyPeer {
	var all []networkingv1.NetworkPolicyPeer
	for _, r := range p.Spec.Ingress {
		all = append(all, r.From...)
	}
	for _, r := range p.Spec.Egress {
		all = append(all, r.To...)
	}
	return all
}
