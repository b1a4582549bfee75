package antrea

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetNamespaceGroupName and NetNamespaceVersion name the API of OpenShift SDN that has NetNamespaces and HostSubnets.
const (
	NetNamespaceGroupName = "network.openshift.io"
	NetNamespaceVersion   = "v1"
)

// NetNamespace has the number of a namespace, as OpenShift SDN keeps it. Namespaces with one number are joined.
type NetNamespace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// NetName is the name of the namespace, and that of the object.
	NetName string `json:"netname"`
	// NetID is nil if the object has no number: a missing one is not 0, which is global.
	NetID *int64 `json:"netid"`

	// EgressIPs are the addresses that packets of the namespace to the outside of the cluster have.
	EgressIPs []string `json:"egressIPs,omitempty"`
}

// ID names the object.
func (o *NetNamespace) ID() ID { return ID{KindNetNamespace, "", o.Name} }

// HostSubnet says which of the addresses in NetNamespaces a node has, as OpenShift SDN keeps it. Its other fields mean nothing here: the
// Node has the pod CIDRs and addresses.
type HostSubnet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Host is the name of the node, and that of the object.
	Host   string `json:"host"`
	HostIP string `json:"hostIP,omitempty"`
	Subnet string `json:"subnet,omitempty"`

	// EgressIPs are addresses that the node has.
	EgressIPs []string `json:"egressIPs,omitempty"`
	// EgressCIDRs have the addresses that the node may have: one of the nodes with an address in a prefix of theirs does.
	EgressCIDRs []string `json:"egressCIDRs,omitempty"`
}

// ID names the object.
func (o *HostSubnet) ID() ID { return ID{KindHostSubnet, "", o.Name} }
