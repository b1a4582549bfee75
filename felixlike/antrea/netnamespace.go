package antrea

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetNamespaceGroupName and NetNamespaceVersion name the API of OpenShift SDN that has NetNamespaces.
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

	// EgressIPs are not supported.
	EgressIPs []string `json:"egressIPs,omitempty"`
}

// ID names the object.
func (o *NetNamespace) ID() ID { return ID{KindNetNamespace, "", o.Name} }
