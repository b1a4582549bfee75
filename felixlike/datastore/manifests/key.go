package manifests

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
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
	kindService
	kindEndpointSlice
	// kindAntrea is the one before the kinds of the package antrea.
	kindAntrea
)

// antrea returns the kind of the package antrea that it is, or false.
func (k kind) antrea() (antrea.Kind, bool) {
	if k <= kindAntrea {
		return 0, false
	}
	return antrea.Kind(k - kindAntrea), true
}

// isPolicy reports whether objects of the kind can be staged.
func (k kind) isPolicy() bool {
	a, is := k.antrea()
	return k == kindNetworkPolicy || k == kindClusterNetworkPolicy || is && a.IsPolicy()
}

// parseKind returns the kind of that name in an API, or false.
func parseKind(apiVersion, name string) (kind, bool) {
	if group, _, _ := strings.Cut(apiVersion, "/"); group == antrea.GroupName || group == antrea.OwnGroupName || group == antrea.NetNamespaceGroupName {
		for _, k := range antrea.Kinds() {
			if k.String() == name && k.GroupVersion().Group == group {
				return kindAntrea + kind(k), true
			}
		}
		return 0, false
	}
	for k := kindNode; k <= kindEndpointSlice; k++ {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}

// String returns the kind as manifests write it; those of Antrea's API have its name too.
func (k kind) String() string {
	if a, is := k.antrea(); is {
		return antrea.ID{Kind: a}.Ref().Kind
	}
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
	case kindService:
		return "Service"
	case kindEndpointSlice:
		return "EndpointSlice"
	}
	return "unknown"
}

// apiVersion returns the only version that we read of a kind.
func (k kind) apiVersion() string {
	if a, is := k.antrea(); is {
		return a.GroupVersion().String()
	}
	switch k {
	case kindNetworkPolicy:
		return "networking.k8s.io/v1"
	case kindClusterNetworkPolicy:
		return v1alpha2.GroupVersion.String()
	case kindEndpointSlice:
		return discoveryv1.SchemeGroupVersion.String()
	}
	return "v1"
}

// namespaced reports whether objects of the kind live in namespaces.
func (k kind) namespaced() bool {
	a, is := k.antrea()
	return k == kindPod || k == kindNetworkPolicy || k.ofServices() || is && a.Namespaced()
}

// ofServices reports whether objects of the kind are for the Service proxy.
func (k kind) ofServices() bool { return k == kindService || k == kindEndpointSlice }

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

// isForeign reports whether an object is of an API group of which we read no kind.
func isForeign(fields map[string]json.RawMessage) bool {
	text, isString := stringField(fields, "apiVersion")
	version, err := schema.ParseGroupVersion(text)
	if !isString || err != nil {
		return false
	}
	switch version.Group {
	case corev1.GroupName, networkingv1.GroupName, v1alpha2.GroupName, antrea.GroupName, antrea.OwnGroupName:
		return false
	}
	return true
}

// isIgnoredKind reports whether a kind is a well-known one of Kubernetes or Antrea, or our own, that the agent does not use;
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
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "FlowSchema", "PriorityLevelConfiguration",
		"AgentConfig",
		"BGPPolicy", "ExternalEntity", "ExternalIPPool", "ExternalNode", "IPPool", "NodeLatencyMonitor", "PacketCapture",
		"SupportBundleCollection", "Traceflow", "TrafficControl":
		return true
	}
	return false
}

// replacedBy returns a hint for kinds that people may expect to be used: the kind that
// took their place.
func replacedBy(name string) string {
	switch name {
	case "AdminNetworkPolicy":
		return "write a ClusterNetworkPolicy of " + kindClusterNetworkPolicy.apiVersion() + " with tier: Admin, as felixctl migrate does"
	case "BaselineAdminNetworkPolicy":
		return "write a ClusterNetworkPolicy of " + kindClusterNetworkPolicy.apiVersion() + " with tier: Baseline, as felixctl migrate does"
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
	if a, is := k.kind.antrea(); is {
		return datastore.AntreaDeleted{ID: antrea.ID{Kind: a, Namespace: k.namespace, Name: k.name}}
	}
	switch k.kind {
	case kindNode:
		return datastore.NodeDeleted{Name: k.name}
	case kindNamespace:
		return datastore.NamespaceDeleted{Name: k.name}
	case kindPod:
		return datastore.PodDeleted{ID: model.PodID{Namespace: k.namespace, Name: k.name}}
	case kindClusterNetworkPolicy:
		return datastore.ClusterNetworkPolicyDeleted{Name: k.name}
	case kindService:
		return datastore.ServiceDeleted{Namespace: k.namespace, Name: k.name}
	case kindEndpointSlice:
		return datastore.EndpointSliceDeleted{Namespace: k.namespace, Name: k.name}
	}
	return datastore.NetworkPolicyDeleted{Namespace: k.namespace, Name: k.name}
}

// stringField returns a field, "" if it is absent or null, and whether that
// is all right.
func stringField(fields map[string]json.RawMessage, name string) (string, bool) {
	raw, given := fields[name]
	if !given {
		return "", true
	}
	var value *string
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", false
	}
	if value == nil {
		return "", true
	}
	return *value, true
}
