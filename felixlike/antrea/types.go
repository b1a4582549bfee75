package antrea

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GroupName and Version name the API.
const (
	GroupName = "crd.antrea.io"
	Version   = "v1beta1"
)

// OwnGroupName and OwnVersion name felixlike's own API, which has two kinds (OwnExternalIPPool, NodeEgress).
const (
	OwnGroupName = "felixlike.io"
	OwnVersion   = "v1alpha1"
)

// GroupVersion returns the group and version of the kinds of Antrea's API.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: Version}
}

// Tier gives the policies that name it a place in the order of evaluation.
type Tier struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TierSpec `json:"spec"`
}

// TierSpec is the content of a Tier. A tier of a lower priority is evaluated first.
type TierSpec struct {
	Priority    int32  `json:"priority"`
	Description string `json:"description,omitempty"`
}

// ClusterNetworkPolicy is a policy for pods of all namespaces.
type ClusterNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PolicySpec      `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

// NetworkPolicy is a policy for pods of its namespace.
type NetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PolicySpec      `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

// PolicySpec is the content of both kinds of policies. AppliedTo is set either here or in each
// rule.
type PolicySpec struct {
	Tier      string      `json:"tier,omitempty"`
	Priority  float64     `json:"priority"`
	AppliedTo []AppliedTo `json:"appliedTo,omitempty"`
	Ingress   []Rule      `json:"ingress,omitempty"`
	Egress    []Rule      `json:"egress,omitempty"`
}

// Action is the effect of a rule on a packet that it matches.
type Action string

// The actions of the API.
const (
	Allow  Action = "Allow"
	Drop   Action = "Drop"
	Reject Action = "Reject"
	Pass   Action = "Pass"
)

// Rule is a rule of either direction. Without peers (From for ingress, To for egress) it matches
// all peers, and without Ports and Protocols all packets.
type Rule struct {
	Action        Action      `json:"action"`
	Ports         []Port      `json:"ports,omitempty"`
	From          []Peer      `json:"from,omitempty"`
	To            []Peer      `json:"to,omitempty"`
	Name          string      `json:"name,omitempty"`
	EnableLogging bool        `json:"enableLogging,omitempty"`
	LogLabel      string      `json:"logLabel,omitempty"`
	AppliedTo     []AppliedTo `json:"appliedTo,omitempty"`
	// Protocols adds to Ports the protocols that have none.
	Protocols []Protocol `json:"protocols,omitempty"`

	// Not supported:

	L7Protocols []json.RawMessage `json:"l7Protocols,omitempty"`
	ToServices  []json.RawMessage `json:"toServices,omitempty"`
}

// Protocol selects packets of one protocol.
type Protocol struct {
	ICMP *ICMP `json:"icmp,omitempty"`

	// Not supported:

	IGMP json.RawMessage `json:"igmp,omitempty"`
}

// ICMP selects messages of ICMP in IPv4, and of ICMPv6 in IPv6: all, those of a type, or those of a type and a
// code.
type ICMP struct {
	Type *int32 `json:"icmpType,omitempty"`
	Code *int32 `json:"icmpCode,omitempty"`
}

// Port selects destination ports of one protocol, TCP if none is given.
type Port struct {
	Protocol *corev1.Protocol    `json:"protocol,omitempty"`
	Port     *intstr.IntOrString `json:"port,omitempty"`
	EndPort  *int32              `json:"endPort,omitempty"`

	// Not supported:

	SourcePort    *int32 `json:"sourcePort,omitempty"`
	SourceEndPort *int32 `json:"sourceEndPort,omitempty"`
}

// Peer selects the other end of a connection.
type Peer struct {
	IPBlock           *IPBlock              `json:"ipBlock,omitempty"`
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	Namespaces        *PeerNamespaces       `json:"namespaces,omitempty"`
	Group             string                `json:"group,omitempty"`
	NodeSelector      *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Scope is supported with the value Cluster, the default.
	Scope string `json:"scope,omitempty"`

	// Not supported:

	ExternalEntitySelector *metav1.LabelSelector `json:"externalEntitySelector,omitempty"`
	FQDN                   string                `json:"fqdn,omitempty"`
	ServiceAccount         *NamespacedName       `json:"serviceAccount,omitempty"`
}

// MatchSelf is the value of PeerNamespaces.Match for the namespace of the pod that the policy
// applies to.
const MatchSelf = "Self"

// PeerNamespaces selects namespaces by the namespace of the pod that the policy applies to.
type PeerNamespaces struct {
	Match string `json:"match,omitempty"`

	// Not supported:

	SameLabels []string `json:"sameLabels,omitempty"`
}

// IPBlock is a prefix without its exceptions.
type IPBlock struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except,omitempty"`
}

// AppliedTo selects pods that a policy or a rule applies to.
type AppliedTo struct {
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	Group             string                `json:"group,omitempty"`

	// Not supported:

	ExternalEntitySelector *metav1.LabelSelector `json:"externalEntitySelector,omitempty"`
	ServiceAccount         *NamespacedName       `json:"serviceAccount,omitempty"`
	Service                *NamespacedName       `json:"service,omitempty"`
	NodeSelector           *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// NamespacedName names an object.
type NamespacedName struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// ClusterGroup names a set of pods or prefixes for policies of both kinds.
type ClusterGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GroupSpec       `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

// Group names a set of pods or prefixes for the NetworkPolicies of its namespace.
type Group struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GroupSpec       `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

// GroupSpec is the content of both kinds of groups: pods by selectors, prefixes, or the members
// of other groups, which have no child groups of their own.
type GroupSpec struct {
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	IPBlocks          []IPBlock             `json:"ipBlocks,omitempty"`
	ChildGroups       []string              `json:"childGroups,omitempty"`

	// Not supported:

	ServiceReference       *NamespacedName       `json:"serviceReference,omitempty"`
	ExternalEntitySelector *metav1.LabelSelector `json:"externalEntitySelector,omitempty"`
}
