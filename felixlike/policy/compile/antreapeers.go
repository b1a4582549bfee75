package compile

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/label"
)

// antreaPeers compiles the peers of a rule. An empty list means any peer. It reports an invalid peer,
// which closes the rule.
func (c *antreaCompiler) antreaPeers(peers []antrea.Peer, path string) peerSet {
	out := peerBuilder{compiler: &c.compiler}
	for i, p := range peers {
		path := indexed(path, i)
		if field := unsupportedPeer(p); field != "" {
			c.Add(path+"."+field, "not supported")
			continue
		}
		switch {
		case countTrue(p.PodSelector != nil || p.NamespaceSelector != nil || p.Namespaces != nil, p.IPBlock != nil, p.Group != "", p.NodeSelector != nil) != 1:
			c.Add(path, "needs selectors of pods, or one of ipBlock, group and nodeSelector")
		case p.NodeSelector != nil:
			if nodes := c.selector(p.NodeSelector, path+".nodeSelector", ""); nodes != nil {
				out.addNodes(nodes)
			}
		case p.IPBlock != nil:
			b, fault := c.antreaBlock(p.IPBlock)
			if fault != "" {
				c.Add(path+".ipBlock", "%s", fault)
				continue
			}
			out.blocks = append(out.blocks, b)
		case p.Group != "":
			g := c.group(p.Group, path+".group", "")
			if g.missing {
				c.Add(path+".group", "group %q, or a child of it, does not exist", p.Group)
			}
			if g.bad {
				continue
			}
			for _, s := range g.selections {
				out.addPods(s)
			}
			out.blocks = append(out.blocks, g.blocks...)
		default:
			if s, ok := c.peerPods(p, path); ok {
				out.addPods(s)
			}
		}
	}
	set := out.set(path)
	set.any = len(peers) == 0
	return set
}

// peerPods compiles a peer with selectors of pods.
func (c *antreaCompiler) peerPods(p antrea.Peer, path string) (Selection, bool) {
	if p.Namespaces == nil {
		return c.pods(p.PodSelector, p.NamespaceSelector, path, "")
	}
	switch {
	case c.id.Kind != antrea.KindClusterNetworkPolicy:
		c.Add(path+".namespaces", "not allowed in a NetworkPolicy")
	case p.NamespaceSelector != nil:
		c.Add(path, "namespaces together with a namespaceSelector")
	case len(p.Namespaces.SameLabels) > 0 && p.Namespaces.Match != "":
		c.Add(path+".namespaces", "match together with sameLabels")
	case len(p.Namespaces.SameLabels) > 0:
		return c.alike(p, path)
	case p.Namespaces.Match != antrea.MatchSelf:
		c.Add(path+".namespaces.match", "%q is not supported: must be Self", p.Namespaces.Match)
	default:
		s, ok := c.pods(p.PodSelector, nil, path, "")
		s.Namespace, s.Namespaces = c.within.Name, nil
		return s, ok
	}
	return Selection{}, false
}

// alike selects pods of the namespaces that have the same values for some labels as the subject's namespace. Without one of these labels
// the subject has no such peers, as under Antrea.
func (c *antreaCompiler) alike(p antrea.Peer, path string) (Selection, bool) {
	same, known := map[string]string{}, true
	for i, key := range p.Namespaces.SameLabels {
		for _, fault := range validation.IsQualifiedName(key) {
			c.Add(indexed(path+".namespaces.sameLabels", i), "invalid key %q: %s", shown(key), fault)
		}
		value, has := c.within.Labels.Get(key)
		same[key], known = value, known && has
	}
	s, ok := c.pods(p.PodSelector, nil, path, "")
	if !ok || !known {
		return s, false
	}
	s.Namespaces = c.selector(&metav1.LabelSelector{MatchLabels: same}, path+".namespaces.sameLabels", "")
	return s, s.Namespaces != nil
}

// pods compiles a selection by selectors, of which one may be nil. A podSelector alone selects in
// the namespace of a NetworkPolicy, and in all namespaces for a ClusterNetworkPolicy.
func (c *antreaCompiler) pods(pods, namespaces *metav1.LabelSelector, path, effect string) (Selection, bool) {
	s := Selection{Namespace: c.namespace, Pods: label.Everything()}
	if c.namespace == "" {
		s.Namespaces = label.Everything()
	}
	ok := true
	if pods != nil {
		s.Pods = c.selector(pods, path+".podSelector", effect)
		ok = s.Pods != nil
	}
	if namespaces != nil {
		s.Namespace, s.Namespaces = "", c.selector(namespaces, path+".namespaceSelector", effect)
		ok = ok && s.Namespaces != nil
	}
	return s, ok
}

// unsupportedPeer returns the field of a peer that is set and not supported, or "".
func unsupportedPeer(p antrea.Peer) string {
	switch {
	case p.FQDN != "":
		return "fqdn"
	case p.ServiceAccount != nil:
		return "serviceAccount"
	case p.ExternalEntitySelector != nil:
		return "externalEntitySelector"
	case p.Scope != "" && p.Scope != "Cluster":
		return "scope"
	}
	return ""
}

// antreaPorts compiles the ports of a rule. It reports an invalid port, which closes the rule.
func (c *antreaCompiler) antreaPorts(ports []antrea.Port, path string) portSet {
	var all []networkingv1.NetworkPolicyPort
	for i, p := range ports {
		if p.SourcePort != nil || p.SourceEndPort != nil {
			c.Add(indexed(path, i)+".sourcePort", "not supported")
		}
		all = append(all, networkingv1.NetworkPolicyPort{Protocol: p.Protocol, Port: p.Port, EndPort: p.EndPort})
	}
	return c.ports(all, path)
}
