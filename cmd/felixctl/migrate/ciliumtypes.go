package migrate

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The types have the fields of cilium.io/v2 (https://docs.cilium.io/en/stable/security/policy/) that are converted. Any other
// field is refused when an object is decoded.

// ciliumSpec is one entry of a CiliumNetworkPolicy or a CiliumClusterwideNetworkPolicy.
type ciliumSpec struct {
	EndpointSelector  *metav1.LabelSelector `json:"endpointSelector,omitempty"`
	Ingress           []json.RawMessage     `json:"ingress,omitempty"`
	IngressDeny       []json.RawMessage     `json:"ingressDeny,omitempty"`
	Egress            []json.RawMessage     `json:"egress,omitempty"`
	EgressDeny        []json.RawMessage     `json:"egressDeny,omitempty"`
	EnableDefaultDeny struct {
		Ingress *bool `json:"ingress,omitempty"`
		Egress  *bool `json:"egress,omitempty"`
	} `json:"enableDefaultDeny"`
	// Labels and Description do not change verdicts.
	Labels      json.RawMessage `json:"labels,omitempty"`
	Description string          `json:"description,omitempty"`
}

// ciliumPeers are the peers of a rule: of ingress with "from", of egress with "to". A list that is there and empty selects nothing.
type ciliumPeers struct {
	Endpoints *[]metav1.LabelSelector
	CIDRs     *[]string
	CIDRSets  *[]ciliumCIDRSet
	Entities  *[]string
	Ports     []ciliumPorts
	ICMPs     []ciliumICMP
}

// selectNothing reports whether all lists of peers are empty.
func (p ciliumPeers) selectNothing() bool {
	return (p.Endpoints == nil || len(*p.Endpoints) == 0) && (p.CIDRs == nil || len(*p.CIDRs) == 0) &&
		(p.CIDRSets == nil || len(*p.CIDRSets) == 0) && (p.Entities == nil || len(*p.Entities) == 0)
}

type ciliumIngress struct {
	FromEndpoints *[]metav1.LabelSelector `json:"fromEndpoints,omitempty"`
	FromCIDR      *[]string               `json:"fromCIDR,omitempty"`
	FromCIDRSet   *[]ciliumCIDRSet        `json:"fromCIDRSet,omitempty"`
	FromEntities  *[]string               `json:"fromEntities,omitempty"`
	ToPorts       []ciliumPorts           `json:"toPorts,omitempty"`
	ICMPs         []ciliumICMP            `json:"icmps,omitempty"`
}

func (r ciliumIngress) peers() ciliumPeers {
	return ciliumPeers{r.FromEndpoints, r.FromCIDR, r.FromCIDRSet, r.FromEntities, r.ToPorts, r.ICMPs}
}

type ciliumEgress struct {
	ToEndpoints *[]metav1.LabelSelector `json:"toEndpoints,omitempty"`
	ToCIDR      *[]string               `json:"toCIDR,omitempty"`
	ToCIDRSet   *[]ciliumCIDRSet        `json:"toCIDRSet,omitempty"`
	ToEntities  *[]string               `json:"toEntities,omitempty"`
	ToPorts     []ciliumPorts           `json:"toPorts,omitempty"`
	ICMPs       []ciliumICMP            `json:"icmps,omitempty"`
}

func (r ciliumEgress) peers() ciliumPeers {
	return ciliumPeers{r.ToEndpoints, r.ToCIDR, r.ToCIDRSet, r.ToEntities, r.ToPorts, r.ICMPs}
}

type ciliumCIDRSet struct {
	CIDR   string   `json:"cidr,omitempty"`
	Except []string `json:"except,omitempty"`
}

type ciliumPorts struct {
	Ports []struct {
		Port     string `json:"port,omitempty"`
		EndPort  int32  `json:"endPort,omitempty"`
		Protocol string `json:"protocol,omitempty"`
	} `json:"ports,omitempty"`
	Rules *struct {
		DNS []struct {
			MatchName    string `json:"matchName,omitempty"`
			MatchPattern string `json:"matchPattern,omitempty"`
		} `json:"dns,omitempty"`
	} `json:"rules,omitempty"`
}

// allNames reports whether the rules of DNS, if there are any, let queries of every name pass.
func (p ciliumPorts) allNames() bool {
	if p.Rules == nil {
		return true
	}
	for _, d := range p.Rules.DNS {
		if d.MatchName == "" && d.MatchPattern == "*" {
			return true
		}
	}
	return false
}

// ciliumICMP selects messages of ICMP. An empty Family means IPv4.
type ciliumICMP struct {
	Fields []struct {
		Family string             `json:"family,omitempty"`
		Type   intstr.IntOrString `json:"type"`
	} `json:"fields,omitempty"`
}
