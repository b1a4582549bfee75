package antrea

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EgressNetworkPolicy has the rules of OpenShift SDN for what pods of a namespace send out of the cluster.
type EgressNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec EgressNetworkPolicySpec `json:"spec"`
}

// EgressNetworkPolicySpec has rules in their order: the first that matches decides.
type EgressNetworkPolicySpec struct {
	Egress []EgressNetworkPolicyRule `json:"egress"`
}

// EgressNetworkPolicyRule is a rule of an EgressNetworkPolicy.
type EgressNetworkPolicyRule struct {
	Type EgressNetworkPolicyType `json:"type"`
	To   EgressNetworkPolicyPeer `json:"to"`
}

// EgressNetworkPolicyType is the effect of a rule.
type EgressNetworkPolicyType string

// The types of rules.
const (
	EgressAllow EgressNetworkPolicyType = "Allow"
	EgressDeny  EgressNetworkPolicyType = "Deny"
)

// EgressNetworkPolicyPeer has one of both fields.
type EgressNetworkPolicyPeer struct {
	CIDRSelector string `json:"cidrSelector,omitempty"`
	// DNSName is not supported.
	DNSName string `json:"dnsName,omitempty"`
}

// ID names the object.
func (o *EgressNetworkPolicy) ID() ID { return ID{KindEgressNetworkPolicy, o.Namespace, o.Name} }
