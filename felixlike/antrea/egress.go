package antrea

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Egress gives packets of pods to the outside of the cluster a source address.
type Egress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EgressSpec      `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

// EgressSpec is the content of an Egress.
type EgressSpec struct {
	AppliedTo AppliedTo `json:"appliedTo"`
	// EgressIP is the source address.
	EgressIP string `json:"egressIP,omitempty"`
	// ExternalIPPool is the name of the pool with the address. Without EgressIP, any of its addresses.
	ExternalIPPool string `json:"externalIPPool,omitempty"`

	// Not supported:

	EgressIPs       []string        `json:"egressIPs,omitempty"`
	ExternalIPPools []string        `json:"externalIPPools,omitempty"`
	Bandwidth       json.RawMessage `json:"bandwidth,omitempty"`
}

// NodeEgress is an Egress of felixlike's own API: it says which nodes may hold its address.
type NodeEgress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeEgressSpec  `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

// NodeEgressSpec is the content of a NodeEgress.
type NodeEgressSpec struct {
	EgressSpec `json:",inline"`
	// Node is the name of the node that holds the address.
	Node string `json:"node,omitempty"`
	// NodeSelector matches the nodes one of which holds the address, by election.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// EgressOf returns the content of an object of either kind, nil for other objects. Of Antrea's kind, Node and
// NodeSelector are empty.
func EgressOf(object Object) *NodeEgressSpec {
	switch o := object.(type) {
	case *Egress:
		return &NodeEgressSpec{EgressSpec: o.Spec}
	case *NodeEgress:
		return &o.Spec
	}
	return nil
}
