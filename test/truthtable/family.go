package truthtable

import (
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// MapFamily returns the step with every address mapped to the family, those
// inside the policies' ipBlocks included. The step itself is not changed.
func (s Step) MapFamily(f model.Family) Step {
	if f != model.IPv6 {
		return s
	}
	s.Nodes, s.Pods, s.Probes = slices.Clone(s.Nodes), slices.Clone(s.Pods), slices.Clone(s.Probes)
	for i := range s.Nodes {
		s.Nodes[i].IP = MapAddr(s.Nodes[i].IP, f)
		s.Nodes[i].PodCIDR = MapPrefix(s.Nodes[i].PodCIDR, f)
	}
	for i := range s.Pods {
		s.Pods[i].IP = MapAddr(s.Pods[i].IP, f)
	}
	for i := range s.Probes {
		s.Probes[i].From = mapEnd(s.Probes[i].From, f)
		s.Probes[i].To = mapEnd(s.Probes[i].To, f)
	}
	policies := make([]networkingv1.NetworkPolicy, len(s.Policies))
	for i := range s.Policies {
		policies[i] = *MapPolicy(&s.Policies[i], f)
	}
	s.Policies = policies
	s.ClusterPolicies = slices.Clone(s.ClusterPolicies)
	for i := range s.ClusterPolicies {
		s.ClusterPolicies[i] = *MapClusterPolicy(&s.ClusterPolicies[i], f)
	}
	s.Antrea = MapAntrea(s.Antrea, f)
	return s
}

func mapEnd(end string, f model.Family) string {
	if address, ok := strings.CutPrefix(end, "ip:"); ok {
		if a, err := netip.ParseAddr(address); err == nil {
			return "ip:" + MapAddr(a, f).String()
		}
	}
	return end
}

// MapPolicy returns a copy of the policy with the addresses of its ipBlocks
// mapped to the family. A text that is no prefix stays as it is.
func MapPolicy(policy *networkingv1.NetworkPolicy, f model.Family) *networkingv1.NetworkPolicy {
	p := policy.DeepCopy()
	for i := range p.Spec.Ingress {
		mapPeers(p.Spec.Ingress[i].From, f)
	}
	for i := range p.Spec.Egress {
		mapPeers(p.Spec.Egress[i].To, f)
	}
	return p
}

// MapClusterPolicy returns a copy of the policy with its networks mapped to the family.
func MapClusterPolicy(policy *v1alpha2.ClusterNetworkPolicy, f model.Family) *v1alpha2.ClusterNetworkPolicy {
	p := policy.DeepCopy()
	for _, rule := range p.Spec.Egress {
		for _, peer := range rule.To {
			for i, n := range peer.Networks {
				peer.Networks[i] = v1alpha2.CIDR(mapCIDR(string(n), f))
			}
		}
	}
	return p
}

// MapAntrea returns the objects with the ipBlocks of policies and groups mapped to the family.
func MapAntrea(o antrea.Objects, f model.Family) antrea.Objects {
	block := func(b *antrea.IPBlock) *antrea.IPBlock {
		if b == nil {
			return nil
		}
		mapped := antrea.IPBlock{CIDR: mapCIDR(b.CIDR, f)}
		for _, except := range b.Except {
			mapped.Except = append(mapped.Except, mapCIDR(except, f))
		}
		return &mapped
	}
	peers := func(all []antrea.Peer) []antrea.Peer {
		all = slices.Clone(all)
		for i := range all {
			all[i].IPBlock = block(all[i].IPBlock)
		}
		return all
	}
	rules := func(all []antrea.Rule) []antrea.Rule {
		all = slices.Clone(all)
		for i := range all {
			all[i].From, all[i].To = peers(all[i].From), peers(all[i].To)
		}
		return all
	}
	group := func(s antrea.GroupSpec) antrea.GroupSpec {
		s.IPBlocks = slices.Clone(s.IPBlocks)
		for i := range s.IPBlocks {
			s.IPBlocks[i] = *block(&s.IPBlocks[i])
		}
		return s
	}
	mapped := antrea.Objects{Tiers: o.Tiers}
	for _, g := range o.ClusterGroups {
		c := *g
		c.Spec = group(c.Spec)
		mapped.ClusterGroups = append(mapped.ClusterGroups, &c)
	}
	for _, g := range o.Groups {
		c := *g
		c.Spec = group(c.Spec)
		mapped.Groups = append(mapped.Groups, &c)
	}
	for _, p := range o.ClusterPolicies {
		c := *p
		c.Spec.Ingress, c.Spec.Egress = rules(c.Spec.Ingress), rules(c.Spec.Egress)
		mapped.ClusterPolicies = append(mapped.ClusterPolicies, &c)
	}
	for _, p := range o.Policies {
		c := *p
		c.Spec.Ingress, c.Spec.Egress = rules(c.Spec.Ingress), rules(c.Spec.Egress)
		mapped.Policies = append(mapped.Policies, &c)
	}
	return mapped
}

func mapPeers(peers []networkingv1.NetworkPolicyPeer, f model.Family) {
	for _, peer := range peers {
		if peer.IPBlock == nil {
			continue
		}
		peer.IPBlock.CIDR = mapCIDR(peer.IPBlock.CIDR, f)
		for i, except := range peer.IPBlock.Except {
			peer.IPBlock.Except[i] = mapCIDR(except, f)
		}
	}
}

func mapCIDR(cidr string, f model.Family) string {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return cidr
	}
	return MapPrefix(p, f).String()
}
