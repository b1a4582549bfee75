package policytest

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
)

// AntreaCluster draws a cluster as TieredCluster does, with objects of Antrea's API.
func AntreaCluster(t *rapid.T) *oracle.Cluster {
	c := TieredCluster(t)
	name := func(prefix string) func(i int) metav1.ObjectMeta {
		return func(i int) metav1.ObjectMeta { return metav1.ObjectMeta{Name: fmt.Sprint(prefix, i)} }
	}
	within := func(meta metav1.ObjectMeta) metav1.ObjectMeta {
		meta.Namespace = pick(t, "namespace", c.Namespaces...).Name
		return meta
	}
	tier, group, policy := name("tier"), name("group"), name("antrea")
	c.Antrea.Tiers = times(t, "antrea tiers", 0, 2, func(i int) *antrea.Tier {
		return &antrea.Tier{ObjectMeta: tier(i), Spec: antrea.TierSpec{Priority: pick[int32](t, "tier priority", 10, 249, 120, 300)}}
	})
	c.Antrea.ClusterGroups = times(t, "cluster groups", 0, 2, func(i int) *antrea.ClusterGroup {
		return &antrea.ClusterGroup{ObjectMeta: group(i), Spec: groupSpec(t)}
	})
	c.Antrea.ClusterPolicies = times(t, "antrea cluster policies", 0, 3, func(i int) *antrea.ClusterNetworkPolicy {
		return &antrea.ClusterNetworkPolicy{ObjectMeta: policy(i), Spec: antreaSpec(t)}
	})
	c.Antrea.Groups = times(t, "groups", 0, 2, func(i int) *antrea.Group {
		return &antrea.Group{ObjectMeta: within(group(i)), Spec: groupSpec(t)}
	})
	c.Antrea.Policies = times(t, "antrea policies", 0, 2, func(i int) *antrea.NetworkPolicy {
		return &antrea.NetworkPolicy{ObjectMeta: within(policy(i)), Spec: antreaSpec(t)}
	})
	projects(t, c)
	return c
}

// projects isolates the namespaces of every other cluster: some have no NetNamespace, some share a number or are global, and
// some NetNamespaces cannot be understood.
func projects(t *rapid.T, c *oracle.Cluster) {
	if c.Antrea.Isolation = oneIn(t, 2, "isolation"); !c.Antrea.Isolation {
		return
	}
	for i := range maxNamespaces {
		if oneIn(t, 3, "no NetNamespace") {
			continue
		}
		n := &antrea.NetNamespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ns%d", i)}}
		n.NetName, n.NetID = n.Name, ptr.To(pick[int64](t, "number", 7, 7, 8, 0))
		if oneIn(t, mistakes, "bad NetNamespace") {
			n.NetID = pick(t, "number", nil, ptr.To[int64](-1), ptr.To[int64](1<<24))
		}
		c.Antrea.NetNamespaces = append(c.Antrea.NetNamespaces, n)
	}
	c.Antrea.EgressPolicies = times(t, "egress network policies", 0, 3, func(i int) *antrea.EgressNetworkPolicy {
		o := &antrea.EgressNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("egress", i), Namespace: pick(t, "namespace", c.Namespaces...).Name}}
		o.Spec.Egress = times(t, "egress rules", 0, 4, func(int) antrea.EgressNetworkPolicyRule { return egressRule(t) })
		return o
	})
}

func egressRule(t *rapid.T) antrea.EgressNetworkPolicyRule {
	r := antrea.EgressNetworkPolicyRule{Type: pick(t, "type", antrea.EgressAllow, antrea.EgressDeny, antrea.EgressDeny)}
	switch pick(t, "to", "block", "block", "all", "all of IPv6", "part") {
	case "block":
		r.To.CIDRSelector = block(t).CIDR
	case "part":
		r.To.CIDRSelector = pick(t, "part", "192.0.2.0/25", "192.0.2.1/32", "128.0.0.0/1", "0.0.0.0/1", "0.0.0.0/32", "2001:db8::/33")
	case "all":
		r.To.CIDRSelector = "0.0.0.0/0"
	case "all of IPv6":
		r.To.CIDRSelector = "::/0"
	}
	if oneIn(t, mistakes, "bad egress rule") {
		switch pick(t, "rule", "type", "name", "nothing", "both", "CIDR") {
		case "type":
			r.Type = "Drop"
		case "name":
			r.To = antrea.EgressNetworkPolicyPeer{DNSName: "a.example"}
		case "nothing":
			r.To = antrea.EgressNetworkPolicyPeer{}
		case "both":
			r.To.DNSName = "a.example"
		case "CIDR":
			r.To.CIDRSelector = "a.example"
		}
	}
	return r
}

func groupSpec(t *rapid.T) antrea.GroupSpec {
	var s antrea.GroupSpec
	switch pick(t, "group", "pods", "namespaces", "both", "blocks", "children") {
	case "pods":
		s.PodSelector = selector(t)
	case "namespaces":
		s.NamespaceSelector = selector(t)
	case "both":
		s.PodSelector, s.NamespaceSelector = selector(t), selector(t)
	case "blocks":
		s.IPBlocks = times(t, "blocks", 1, 2, func(int) antrea.IPBlock { return *antreaBlock(t) })
	case "children":
		s.ChildGroups = times(t, "children", 1, 2, func(int) string { return groupName(t) })
	}
	if oneIn(t, mistakes, "bad group") {
		s = pick(t, "group", antrea.GroupSpec{}, antrea.GroupSpec{PodSelector: selector(t), ServiceReference: &antrea.NamespacedName{Name: "s"}},
			antrea.GroupSpec{PodSelector: selector(t), IPBlocks: []antrea.IPBlock{*antreaBlock(t)}})
	}
	return s
}

// groupName is the name of a group that there may be.
func groupName(t *rapid.T) string {
	return pick(t, "group name", "group0", "group1", "group0", "group2")
}

func antreaBlock(t *rapid.T) *antrea.IPBlock {
	b := block(t)
	return &antrea.IPBlock{CIDR: b.CIDR, Except: b.Except}
}

func antreaSpec(t *rapid.T) antrea.PolicySpec {
	s := antrea.PolicySpec{
		Tier:     pick(t, "tier", "", "emergency", "baseline", "application", "tier0", "tier1", "SecurityOps"),
		Priority: pick(t, "priority", 1, 5, 5.5, 10, 9999.5),
	}
	if oneIn(t, mistakes, "bad priority") {
		s.Priority = pick(t, "priority", 0, -1, 10001.0)
	}
	each := oneIn(t, 3, "appliedTo of rules")
	if !each || oneIn(t, mistakes, "appliedTo twice") {
		s.AppliedTo = appliedTo(t)
	}
	s.Ingress = times(t, "ingress", 0, 3, func(int) antrea.Rule {
		r := antreaRule(t, each)
		r.From = antreaPeers(t)
		return r
	})
	s.Egress = times(t, "egress", 0, 3, func(int) antrea.Rule {
		r := antreaRule(t, each)
		r.To = antreaPeers(t)
		return r
	})
	return s
}

func appliedTo(t *rapid.T) []antrea.AppliedTo {
	return times(t, "appliedTo", 1, 2, func(int) antrea.AppliedTo {
		var a antrea.AppliedTo
		switch pick(t, "applied", "pods", "all", "namespaces", "both", "group") {
		case "pods":
			a.PodSelector = selector(t)
		case "all":
			a.PodSelector = &metav1.LabelSelector{}
		case "namespaces":
			a.NamespaceSelector = selector(t)
		case "both":
			a.PodSelector, a.NamespaceSelector = selector(t), selector(t)
		case "group":
			a.Group = groupName(t)
		}
		if oneIn(t, mistakes, "bad appliedTo") {
			a = pick(t, "applied", antrea.AppliedTo{}, antrea.AppliedTo{Service: &antrea.NamespacedName{Name: "s"}},
				antrea.AppliedTo{PodSelector: selector(t), Group: "group0"})
		}
		return a
	})
}

func antreaRule(t *rapid.T, own bool) antrea.Rule {
	r := antrea.Rule{Action: pick(t, "action", antrea.Drop, antrea.Allow, antrea.Pass, antrea.Reject)}
	for _, p := range ports(t) {
		r.Ports = append(r.Ports, antrea.Port{Protocol: p.Protocol, Port: p.Port, EndPort: p.EndPort})
	}
	if oneIn(t, 3, "protocols") {
		r.Protocols = times(t, "protocols", 1, 2, func(int) antrea.Protocol { return antrea.Protocol{ICMP: messages(t)} })
	}
	if own && !oneIn(t, mistakes, "no appliedTo") {
		r.AppliedTo = appliedTo(t)
	}
	if oneIn(t, mistakes, "bad rule") {
		something := []json.RawMessage{json.RawMessage("{}")}
		switch pick(t, "rule", "action", "protocols", "l7", "services") {
		case "action":
			r.Action = "Log"
		case "protocols":
			r.Protocols = pick(t, "protocols", []antrea.Protocol{{}}, []antrea.Protocol{{IGMP: json.RawMessage("{}")}},
				[]antrea.Protocol{{ICMP: messages(t)}, {ICMP: messages(t), IGMP: json.RawMessage("{}")}},
				[]antrea.Protocol{{ICMP: &antrea.ICMP{Type: optional(pick[int32](t, "type", -1, 255, 256, 1<<20))}}},
				[]antrea.Protocol{{ICMP: &antrea.ICMP{Type: optional(8), Code: optional(pick[int32](t, "code", -1, 256))}}},
				[]antrea.Protocol{{ICMP: &antrea.ICMP{Code: optional(0)}}})
		case "l7":
			r.L7Protocols = something
		case "services":
			r.ToServices = something
		}
	}
	return r
}

// messages are those of ICMP that a rule names: all, a type, or a type and a code.
func messages(t *rapid.T) *antrea.ICMP {
	var m antrea.ICMP
	if !oneIn(t, 4, "all messages") {
		m.Type = optional(pick[int32](t, "type", 8, 128, 13, 3, 254))
		if oneIn(t, 3, "a code") {
			m.Code = optional(pick[int32](t, "code", 0, 0, 1, 255))
		}
	}
	return &m
}

func optional(n int32) *int32 { return &n }

func antreaPeers(t *rapid.T) []antrea.Peer {
	return times(t, "peers", 0, 2, func(int) antrea.Peer {
		var p antrea.Peer
		switch pick(t, "peer", "pods", "namespaces", "both", "block", "group", "nodes", "self", "pods of self", "same labels") {
		case "pods":
			p.PodSelector = selector(t)
		case "namespaces":
			p.NamespaceSelector = selector(t)
		case "both":
			p.PodSelector, p.NamespaceSelector = selector(t), selector(t)
		case "block":
			p.IPBlock = antreaBlock(t)
		case "group":
			p.Group = groupName(t)
		case "nodes":
			p.NodeSelector = selector(t)
		case "self":
			p.Namespaces = &antrea.PeerNamespaces{Match: antrea.MatchSelf}
		case "pods of self":
			p.PodSelector, p.Namespaces = selector(t), &antrea.PeerNamespaces{Match: antrea.MatchSelf}
		case "same labels":
			p.Namespaces = &antrea.PeerNamespaces{SameLabels: times(t, "keys", 1, 2, func(int) string { return pick(t, "key", "app", "tier") })}
		}
		if oneIn(t, mistakes, "bad peer") {
			p = pick(t, "peer", antrea.Peer{}, antrea.Peer{FQDN: "a.example"}, antrea.Peer{PodSelector: selector(t), Scope: "ClusterSet"},
				antrea.Peer{Namespaces: &antrea.PeerNamespaces{Match: antrea.MatchSelf, SameLabels: []string{"app"}}}, antrea.Peer{PodSelector: selector(t), Group: "group0"})
		}
		return p
	})
}
