package manifests

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// kind is a kind of object that we use. The order is that of events.
type kind uint8

const (
	kindNode kind = iota + 1
	kindNamespace
	kindPod
	kindNetworkPolicy
	kindClusterNetworkPolicy
)

// parseKind returns the kind of that name, or false.
func parseKind(name string) (kind, bool) {
	for k := kindNode; k <= kindClusterNetworkPolicy; k++ {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}

// String returns the kind as manifests write it.
func (k kind) String() string {
	switch k {
	case kindNode:
		return "Node"
	case kindNamespace:
		return "Namespace"
	case kindPod:
		return "Pod"
	case kindNetworkPolicy:
		return "NetworkPolicy"
	case kindClusterNetworkPolicy:
		return "ClusterNetworkPolicy"
	}
	return "unknown"
}

// apiVersion returns the only version that we read of a kind.
func (k kind) apiVersion() string {
	switch k {
	case kindNetworkPolicy:
		return "networking.k8s.io/v1"
	case kindClusterNetworkPolicy:
		return v1alpha2.GroupVersion.String()
	}
	return "v1"
}

// namespaced reports whether objects of the kind live in namespaces.
func (k kind) namespaced() bool { return k == kindPod || k == kindNetworkPolicy }

// checkName returns the fault of a name by the API server's rules, or "".
func (k kind) checkName(name string) string {
	if name == "" {
		return "required"
	}
	check := validation.IsDNS1123Subdomain
	if k == kindNamespace {
		check = validation.IsDNS1123Label
	}
	return strings.Join(check(name), "; ")
}

// isIgnoredKind reports whether a kind is a well-known one of Kubernetes that the agent does not use;
// manifests of applications are full of them.
func isIgnoredKind(name string) bool {
	switch name {
	case "Binding", "ConfigMap", "Endpoints", "Event", "LimitRange", "PersistentVolume", "PersistentVolumeClaim",
		"PodTemplate", "ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount",
		"ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet",
		"CronJob", "Job", "HorizontalPodAutoscaler", "PodDisruptionBudget", "EndpointSlice", "Lease",
		"Ingress", "IngressClass", "IPAddress", "ServiceCIDR", "PriorityClass", "RuntimeClass",
		"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment",
		"CustomResourceDefinition", "APIService", "CertificateSigningRequest",
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "FlowSchema", "PriorityLevelConfiguration":
		return true
	}
	return false
}

// replacedBy returns a hint for kinds that people may expect to be used: the kind that
// took their place.
func replacedBy(name string) string {
	switch name {
	case "AdminNetworkPolicy":
		return "write a ClusterNetworkPolicy of " + kindClusterNetworkPolicy.apiVersion() + " with tier: Admin"
	case "BaselineAdminNetworkPolicy":
		return "write a ClusterNetworkPolicy of " + kindClusterNetworkPolicy.apiVersion() + " with tier: Baseline"
	}
	return ""
}

// key names an object of a kind that we use.
type key struct {
	kind            kind
	namespace, name string
}

func (k key) ref() model.ObjectRef {
	return model.ObjectRef{Kind: k.kind.String(), Namespace: k.namespace, Name: k.name}
}

func (k key) compare(o key) int {
	if k.kind != o.kind {
		return int(k.kind) - int(o.kind)
	}
	if c := strings.Compare(k.namespace, o.namespace); c != 0 {
		return c
	}
	return strings.Compare(k.name, o.name)
}

// deleted returns the event that ends the object.
func (k key) deleted() datastore.Event {
	switch k.kind {
	case kindNode:
		return datastore.NodeDeleted{Name: k.name}
	case kindNamespace:
		return datastore.NamespaceDeleted{Name: k.name}
	case kindPod:
		return datastore.PodDeleted{ID: model.PodID{Namespace: k.namespace, Name: k.name}}
	case kindClusterNetworkPolicy:
		return datastore.ClusterNetworkPolicyDeleted{Name: k.name}
	}
	return datastore.NetworkPolicyDeleted{Namespace: k.namespace, Name: k.name}
}
