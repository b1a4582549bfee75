package policytest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

func clusterNetworkPolicy(t *rapid.T, name string) *v1alpha2.ClusterNetworkPolicy {
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Tier = pick(t, "tier", v1alpha2.AdminTier, v1alpha2.BaselineTier)
	// Few values, so that some are equal.
	p.Spec.Priority = pick[int32](t, "priority", 0, 1, 10, 1000)
	if oneIn(t, 2, "subject pods") {
		p.Spec.Subject.Pods = namespacedPod(t)
	} else {
		p.Spec.Subject.Namespaces = selector(t)
	}
	p.Spec.Ingress = times(t, "ingress rules", 0, 3, func(int) v1alpha2.ClusterNetworkPolicyIngressRule {
		return v1alpha2.ClusterNetworkPolicyIngressRule{Action: action(t), From: clusterSources(t), Protocols: clusterProtocols(t)}
	})
	p.Spec.Egress = times(t, "egress rules", 0, 3, func(int) v1alpha2.ClusterNetworkPolicyEgressRule {
		return v1alpha2.ClusterNetworkPolicyEgressRule{Action: action(t), To: clusterDestinations(t), Protocols: clusterProtocols(t)}
	})
	switch {
	case oneIn(t, mistakes, "unknown tier"):
		p.Spec.Tier = "Sideways"
	case oneIn(t, mistakes, "bad priority"):
		p.Spec.Priority = pick[int32](t, "priority", -1, 1001)
	case oneIn(t, mistakes, "bad subject"):
		p.Spec.Subject = pick(t, "subject", v1alpha2.ClusterNetworkPolicySubject{},
			v1alpha2.ClusterNetworkPolicySubject{Namespaces: selector(t), Pods: namespacedPod(t)})
	}
	return p
}

func namespacedPod(t *rapid.T) *v1alpha2.NamespacedPod {
	return &v1alpha2.NamespacedPod{NamespaceSelector: *selector(t), PodSelector: *selector(t)}
}

func action(t *rapid.T) v1alpha2.ClusterNetworkPolicyRuleAction {
	if oneIn(t, mistakes, "unknown action") {
		return "Reflect"
	}
	return pick(t, "action", v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny,
		v1alpha2.ClusterNetworkPolicyRuleActionPass)
}

func clusterSources(t *rapid.T) []v1alpha2.ClusterNetworkPolicyIngressPeer {
	if oneIn(t, mistakes, "no peers") {
		return nil
	}
	return times(t, "sources", 1, 2, func(int) v1alpha2.ClusterNetworkPolicyIngressPeer {
		p := v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: selector(t)}
		if oneIn(t, 2, "pods") {
			p = v1alpha2.ClusterNetworkPolicyIngressPeer{Pods: namespacedPod(t)}
		}
		switch {
		case oneIn(t, mistakes, "empty peer"):
			p = v1alpha2.ClusterNetworkPolicyIngressPeer{}
		case oneIn(t, mistakes, "two fields"):
			p = v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: selector(t), Pods: namespacedPod(t)}
		}
		return p
	})
}

func clusterDestinations(t *rapid.T) []v1alpha2.ClusterNetworkPolicyEgressPeer {
	if oneIn(t, mistakes, "no peers") {
		return nil
	}
	return times(t, "destinations", 1, 2, func(int) v1alpha2.ClusterNetworkPolicyEgressPeer {
		var p v1alpha2.ClusterNetworkPolicyEgressPeer
		switch pick(t, "peer", "namespaces", "pods", "networks", "nodes") {
		case "namespaces":
			p.Namespaces = selector(t)
		case "pods":
			p.Pods = namespacedPod(t)
		case "networks":
			p.Networks = times(t, "networks", 1, 3, func(int) v1alpha2.CIDR { return v1alpha2.CIDR(pick(t, "cidr", blocks()...)) })
		case "nodes":
			p.Nodes = selector(t)
		}
		switch {
		case oneIn(t, mistakes, "empty peer"):
			p = v1alpha2.ClusterNetworkPolicyEgressPeer{}
		case oneIn(t, mistakes, "domain names"):
			p = v1alpha2.ClusterNetworkPolicyEgressPeer{DomainNames: []v1alpha2.DomainName{"example.org"}}
		case oneIn(t, mistakes, "bad cidr"):
			p = v1alpha2.ClusterNetworkPolicyEgressPeer{Networks: []v1alpha2.CIDR{"10.10.0.0/24", "::ffff:10.10.0.0/112"}}
		case oneIn(t, mistakes, "two fields"):
			p = v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: selector(t), Nodes: selector(t)}
		}
		return p
	})
}

func clusterProtocols(t *rapid.T) []v1alpha2.ClusterNetworkPolicyProtocol {
	if oneIn(t, mistakes, "empty protocols") {
		return []v1alpha2.ClusterNetworkPolicyProtocol{}
	}
	return times(t, "protocols", 0, 2, func(int) v1alpha2.ClusterNetworkPolicyProtocol {
		port := &v1alpha2.Port{Number: int32(pick(t, "number", portNumbers()...))}
		if oneIn(t, 3, "range") {
			port = &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: port.Number, End: port.Number + int32(pick(t, "range", 1, 20, 9000))}}
		}
		if oneIn(t, mistakes, "bad port") {
			port = pick(t, "port", nil, &v1alpha2.Port{}, &v1alpha2.Port{Number: 65536}, &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: 80, End: 7}})
		}
		var p v1alpha2.ClusterNetworkPolicyProtocol
		switch pick(t, "protocol", "tcp", "udp", "sctp", "name") {
		case "tcp":
			p.TCP = &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}
		case "udp":
			p.UDP = &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}
		case "sctp":
			p.SCTP = &v1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port}
		case "name":
			p.DestinationNamedPort = pick(t, "name", portNames()...)
		}
		switch {
		case oneIn(t, mistakes, "empty protocol"):
			p = v1alpha2.ClusterNetworkPolicyProtocol{}
		case oneIn(t, mistakes, "bad name"):
			p = v1alpha2.ClusterNetworkPolicyProtocol{DestinationNamedPort: "Not_A_Port"}
		}
		return p
	})
}
