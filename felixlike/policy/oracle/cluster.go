package oracle

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// Cluster has all objects that a verdict depends on. Two running pods outside the host's
// network must not have one address.
type Cluster struct {
	Nodes      []*corev1.Node
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
	// EnforceStaged has staged policies judge as if they were enforced.
	EnforceStaged bool
	// ClusterPolicies are those of the admin and the baseline tier.
	ClusterPolicies []*v1alpha2.ClusterNetworkPolicy
	// Antrea are the objects of Antrea's API.
	Antrea antrea.Objects
	// Hosts has more about nodes, by name.
	Hosts map[string]Host
}

// Packet is the first packet of a connection, after DNAT. Its addresses may
// be those of pods, of nodes, or external. Port is the destination port, for ICMP
// 256 times the type plus the code, 0 where the protocol has neither.
type Packet struct {
	Source, Destination netip.Addr
	Protocol            model.Protocol
	Port                uint16
}

// String returns the packet as "tcp 10.0.0.1 -> 10.0.0.2:80", or "icmp type 8 code 0 10.0.0.1 -> 10.0.0.2".
func (p Packet) String() string {
	if p.Protocol.IsICMP() {
		return fmt.Sprintf("%s type %d code %d %s -> %s", p.Protocol, p.Port/256, p.Port%256, p.Source, p.Destination)
	}
	return fmt.Sprintf("%s %s -> %s", p.Protocol, p.Source, netip.AddrPortFrom(p.Destination, p.Port))
}

// Verdict is the answer: a packet is allowed when both its ends allow it.
type Verdict struct {
	Allowed         bool
	Egress, Ingress Decision
}

// Decision is the result of the policies of one end.
type Decision struct {
	Allowed bool
	Why     Why
	// Node is the node whose own policies decided, if the end is a node with policies.
	Node string
	// Policy and Rule name the rule that allowed the packet, or denied it. The tier of
	// the policy is the one that decided. Title is the name that the author gave the rule.
	Policy      model.PolicyID
	Rule, Title string
	// Passed are the rules of the admin and the baseline tier that passed the packet on
	// to the next tier.
	Passed []RuleID
	// Isolating are the policies that isolate the end, sorted.
	Isolating []model.PolicyID
}

// Why is the ground of a decision.
type Why string

func always(why Why) Verdict {
	d := Decision{Allowed: true, Why: why}
	return Verdict{Allowed: true, Egress: d, Ingress: d}
}

// RuleID names a rule of a policy. Title is the name that its author gave it.
type RuleID struct {
	Policy      model.PolicyID
	Rule, Title string
}
