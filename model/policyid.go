package model

import (
	"cmp"
	"fmt"
	"strconv"
)

// Tier is the layer a policy belongs to. Tiers are evaluated in the order of their values; a packet that no
// tier decides is allowed.
type Tier uint8

const (
	// TierAdmin policies are ordered and may allow, deny or pass.
	TierAdmin Tier = iota + 1
	// TierNetworkPolicy holds networking.k8s.io/v1 NetworkPolicy. One of them isolates an endpoint in a
	// direction; packets that none of its policies allows are then denied.
	TierNetworkPolicy
	// TierBaseline policies are ordered and judge only endpoints that no
	// NetworkPolicy isolates.
	TierBaseline
)

// String returns the tier's name.
func (t Tier) String() string {
	switch t {
	case TierAdmin:
		return "admin"
	case TierNetworkPolicy:
		return "networkpolicy"
	case TierBaseline:
		return "baseline"
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// PolicyAPI is the API that a policy is an object of.
type PolicyAPI uint8

const (
	// Kubernetes policies are NetworkPolicies, in the tier of that name, and
	// ClusterNetworkPolicies of policy.networking.k8s.io.
	Kubernetes PolicyAPI = iota
	// AntreaCluster policies are ClusterNetworkPolicies of crd.antrea.io.
	AntreaCluster
	// Antrea policies are NetworkPolicies of crd.antrea.io.
	Antrea
	// Isolation policies are of no object: the setting isolation has one for each namespace. They are the first of the
	// admin tier (PrecedenceBeforeTiers).
	Isolation
	// EgressNetworkPolicy policies are of OpenShift SDN's objects of that name. They are before all tiers, too.
	EgressNetworkPolicy
)

// PolicyID names a policy within its tier. Cluster-scoped policies have no
// namespace.
type PolicyID struct {
	Tier      Tier      `json:"tier"`
	API       PolicyAPI `json:"api,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	// Part numbers the parts of an object whose rules do not all apply to the same
	// pods, in the order of the rules. It is zero for a whole object.
	Part uint16 `json:"part,omitempty"`
	// Within is the namespace of the pods that the policy applies to, if the object has
	// a policy for each namespace: its rules mean other peers in each.
	Within string `json:"within,omitempty"`
}

// String returns the name of the object, such as "networkpolicy/namespace/name", and "isolation/namespace" for the isolation of a
// namespace. "#2" stands behind it for the second part, and "@namespace" for the pods of a namespace.
func (id PolicyID) String() string {
	if id.API == Isolation {
		return "isolation/" + id.Namespace
	}
	name := id.Object().String()
	if id.Part > 0 {
		name += "#" + strconv.Itoa(int(id.Part))
	}
	if id.Within != "" {
		name += "@" + id.Within
	}
	return name
}

// kind returns API group and kind of the object.
func (id PolicyID) kind() (group, kind string) {
	switch {
	case id.API == AntreaCluster:
		return "crd.antrea.io", "ClusterNetworkPolicy"
	case id.API == Antrea:
		return "crd.antrea.io", "NetworkPolicy"
	case id.API == Isolation:
		return "felixlike.io", "Isolation"
	case id.API == EgressNetworkPolicy:
		return "network.openshift.io", "EgressNetworkPolicy"
	case id.Tier == TierNetworkPolicy:
		return "networking.k8s.io", "NetworkPolicy"
	}
	return "policy.networking.k8s.io", "ClusterNetworkPolicy"
}

// Object names the object of the policy. The kind has the API group if it is not one of
// Kubernetes. The isolation of a namespace has none: it names the namespace.
func (id PolicyID) Object() ObjectRef {
	if id.API == Isolation {
		return ObjectRef{Kind: "Namespace", Name: id.Namespace}
	}
	group, kind := id.kind()
	if id.API != Kubernetes {
		kind += "." + group
	}
	return ObjectRef{Kind: kind, Namespace: id.Namespace, Name: id.Name}
}

// IsolationOf returns the identifier of the policy that isolates a namespace.
func IsolationOf(namespace string) PolicyID {
	return PolicyID{Tier: TierAdmin, API: Isolation, Namespace: namespace, Name: "isolation"}
}

// BeforeTiers reports whether the policy is evaluated before all tiers. At most one such policy of a direction applies to a pod. Its
// rules are for any port. Those with Next come first, and those with Deny match different peers.
func (id PolicyID) BeforeTiers() bool { return id.API == Isolation || id.API == EgressNetworkPolicy }

// Identity returns the unique identity of the policy: API group, kind, tier, namespace
// and name, for Antrea's also part and namespace of the pods, each followed by a zero
// byte, which occurs in none of them. A new kind in an existing tier needs an API of its
// own in PolicyID and here.
func (id PolicyID) Identity() string { return string(id.AppendIdentity(nil)) }

// AppendIdentity appends the identity.
func (id PolicyID) AppendIdentity(b []byte) []byte {
	group, kind := id.kind()
	for _, field := range [...]string{group, kind, id.Tier.String(), id.Namespace, id.Name} {
		b = append(append(b, field...), 0)
	}
	if id.API != Kubernetes {
		b = append(strconv.AppendInt(b, int64(id.Part), 10), 0)
		b = append(append(b, id.Within...), 0)
	}
	return b
}

// Compare orders policies by tier, API, namespace, name, part.
func (id PolicyID) Compare(o PolicyID) int {
	return cmp.Or(
		cmp.Compare(id.Tier, o.Tier), cmp.Compare(id.API, o.API),
		cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name),
		cmp.Compare(id.Part, o.Part), cmp.Compare(id.Within, o.Within),
	)
}
