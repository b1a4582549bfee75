package migrate

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// The types have the fields of https://docs.tigera.io/calico/latest/reference/resources/networkpolicy and
// globalnetworkpolicy that are converted, or whose name alone is known. Any other field is refused when an object is decoded.

// calicoSpec is the content of a NetworkPolicy or a GlobalNetworkPolicy.
type calicoSpec struct {
	Tier              string            `json:"tier,omitempty"`
	Order             *float64          `json:"order,omitempty"`
	Types             []string          `json:"types,omitempty"`
	Selector          string            `json:"selector,omitempty"`
	NamespaceSelector string            `json:"namespaceSelector,omitempty"`
	Ingress           []json.RawMessage `json:"ingress,omitempty"`
	Egress            []json.RawMessage `json:"egress,omitempty"`
	// PerformanceHints do not change verdicts.
	PerformanceHints []string `json:"performanceHints,omitempty"`

	// For host endpoints. ApplyOnForward is converted together with PreDNAT only.

	PreDNAT        bool `json:"preDNAT,omitempty"`
	ApplyOnForward bool `json:"applyOnForward,omitempty"`

	// Not converted:

	ServiceAccountSelector string `json:"serviceAccountSelector,omitempty"`
	DoNotTrack             bool   `json:"doNotTrack,omitempty"`
}

// calicoRule is a rule of either direction.
type calicoRule struct {
	Action      string              `json:"action"`
	IPVersion   int                 `json:"ipVersion,omitempty"`
	Protocol    *intstr.IntOrString `json:"protocol,omitempty"`
	ICMP        *calicoICMP         `json:"icmp,omitempty"`
	Source      calicoEntity        `json:"source"`
	Destination calicoEntity        `json:"destination"`
	// Metadata has annotations of the rule.
	Metadata json.RawMessage `json:"metadata,omitempty"`

	// Not converted:

	NotProtocol *intstr.IntOrString `json:"notProtocol,omitempty"`
	NotICMP     json.RawMessage     `json:"notICMP,omitempty"`
	HTTP        json.RawMessage     `json:"http,omitempty"`
}

// calicoICMP selects messages of the rule's protocol, which is ICMP or ICMPv6.
type calicoICMP struct {
	Type *int32 `json:"type,omitempty"`
	Code *int32 `json:"code,omitempty"`
}

// calicoEntity is the source or the destination of a rule. All fields that are set must match.
type calicoEntity struct {
	Nets              []string             `json:"nets,omitempty"`
	NotNets           []string             `json:"notNets,omitempty"`
	Selector          string               `json:"selector,omitempty"`
	NotSelector       string               `json:"notSelector,omitempty"`
	NamespaceSelector string               `json:"namespaceSelector,omitempty"`
	Ports             []intstr.IntOrString `json:"ports,omitempty"`
	NotPorts          []intstr.IntOrString `json:"notPorts,omitempty"`

	// Not converted:

	Services        json.RawMessage `json:"services,omitempty"`
	Domains         []string        `json:"domains,omitempty"`
	ServiceAccounts json.RawMessage `json:"serviceAccounts,omitempty"`
}

// calicoSet is a NetworkSet, or a GlobalNetworkSet without a namespace.
type calicoSet struct {
	namespace, name string
	labels          map[string]string
	nets            []string
	// incomplete: a part of the set is not converted. So no rule that selects it is.
	incomplete bool
	// host: it stands for the addresses of a host endpoint.
	host bool
}
