package antrea

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExternalIPPool has addresses for Egresses, and the nodes that may hold them.
type ExternalIPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ExternalIPPoolSpec `json:"spec"`
	Status json.RawMessage    `json:"status,omitempty"`
}

// OwnExternalIPPool is the ExternalIPPool of felixlike's own API. Its fields are the same.
type OwnExternalIPPool ExternalIPPool

// ExternalIPPoolSpec is the content of an ExternalIPPool.
type ExternalIPPoolSpec struct {
	IPRanges     []IPRange            `json:"ipRanges"`
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`

	// Not supported:

	SubnetInfo json.RawMessage `json:"subnetInfo,omitempty"`
}

// IPRange is a CIDR, or a first and a last address.
type IPRange struct {
	CIDR  string `json:"cidr,omitempty"`
	Start string `json:"start,omitempty"`
	End   string `json:"end,omitempty"`
}

// PoolOf returns the content of an ExternalIPPool of either API, nil for other objects.
func PoolOf(object Object) *ExternalIPPoolSpec {
	switch o := object.(type) {
	case *ExternalIPPool:
		return &o.Spec
	case *OwnExternalIPPool:
		return &o.Spec
	}
	return nil
}

// PoolKind returns the kind of the pools that Egresses of a kind may name: those of the same API.
func (k Kind) PoolKind() Kind {
	if k == KindNodeEgress {
		return KindOwnExternalIPPool
	}
	return KindExternalIPPool
}
