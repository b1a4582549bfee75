package control

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

const objectsPath = "/" + Version + "/objects"

// Objects are the Kubernetes objects of the whole cluster as the agent has them now, reduced to the fields
// that policy depends on. For a pod of its node, the agent gives the addresses of the attachment. All are sorted by namespace and name. A policy that cannot be understood is listed
// with its effect: it isolates both directions and allows nothing.
type Objects struct {
	// Node is the agent's own, Revision the datastore's.
	Node string `json:"node"`
	// InSync reports that the first listing of the datastore is complete. Before, objects are missing.
	InSync     bool                          `json:"inSync"`
	Revision   uint64                        `json:"revision"`
	Nodes      []*corev1.Node                `json:"nodes"`
	Namespaces []*corev1.Namespace           `json:"namespaces"`
	Pods       []*corev1.Pod                 `json:"pods"`
	Policies   []*networkingv1.NetworkPolicy `json:"networkPolicies"`
	// ClusterPolicies are missing in an agent that is older than they are.
	ClusterPolicies []*v1alpha2.ClusterNetworkPolicy `json:"clusterNetworkPolicies,omitempty"`
	// Antrea are the objects of Antrea's API.
	Antrea antrea.Objects `json:"antrea,omitzero"`
}

// Objects returns the Kubernetes objects that the agent goes by.
func (c *Client) Objects(ctx context.Context) (Objects, error) {
	var all Objects
	err := c.call(ctx, http.MethodGet, objectsPath, nil, nil, &all)
	return all, err
}
