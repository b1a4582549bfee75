package policy

import (
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/model"
)

// SetClusterNetworkPolicy creates or replaces a ClusterNetworkPolicy, and reports what
// in it cannot be understood.
func (e *Engine) SetClusterNetworkPolicy(object *v1alpha2.ClusterNetworkPolicy) []model.Problem {
	if object == nil {
		return nil
	}
	ref := model.ObjectRef{Kind: "ClusterNetworkPolicy", Name: object.Name}
	return []model.Problem{{Object: ref, Reason: "ClusterNetworkPolicy is not supported; nothing of it applies"}}
}

// DeleteClusterNetworkPolicy removes a ClusterNetworkPolicy.
func (e *Engine) DeleteClusterNetworkPolicy(string) {}
