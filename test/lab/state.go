package lab

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// State is the desired cluster: ordinary Kubernetes objects. Nodes and
// pods also describe the lab's network: a node's InternalIP addresses and
// podCIDRs; a pod's node, addresses (status.podIPs) and the ports of its
// containers, which the pod serves.
type State struct {
	Nodes      []*corev1.Node                `json:"nodes,omitempty"`
	Namespaces []*corev1.Namespace           `json:"namespaces,omitempty"`
	Pods       []*corev1.Pod                 `json:"pods,omitempty"`
	Policies   []*networkingv1.NetworkPolicy `json:"policies,omitempty"`
	// ClusterPolicies are policies of the admin and the baseline tier.
	ClusterPolicies []*v1alpha2.ClusterNetworkPolicy `json:"clusterPolicies,omitempty"`
	// Antrea are objects of Antrea's API.
	Antrea antrea.Objects `json:"antrea,omitzero"`
	// Files are put into the manifests directory as they are, by file name.
	Files map[string][]byte `json:"files,omitempty"`
}

// manifests renders the state as files of the manifests directory, one an
// object.
func (s *State) manifests() (map[string][]byte, error) {
	files := map[string][]byte{}
	add := func(kind, namespace, name string, object runtime.Object) error {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("render %s %s/%s: %w", kind, namespace, name, err)
		}
		file := kind + "_" + namespace + "_" + name
		if namespace == "" {
			file = kind + "_" + name
		}
		files[file+".yaml"] = text
		return nil
	}
	for _, o := range s.Nodes {
		o = o.DeepCopy()
		o.APIVersion, o.Kind = "v1", "Node"
		if err := add("node", "", o.Name, o); err != nil {
			return nil, err
		}
	}
	for _, o := range s.Namespaces {
		o = o.DeepCopy()
		o.APIVersion, o.Kind = "v1", "Namespace"
		if err := add("namespace", "", o.Name, o); err != nil {
			return nil, err
		}
	}
	for _, o := range s.Pods {
		o = o.DeepCopy()
		o.APIVersion, o.Kind = "v1", "Pod"
		if err := add("pod", o.Namespace, o.Name, o); err != nil {
			return nil, err
		}
	}
	for _, o := range s.Policies {
		o = o.DeepCopy()
		o.APIVersion, o.Kind = "networking.k8s.io/v1", "NetworkPolicy"
		if err := add("networkpolicy", o.Namespace, o.Name, o); err != nil {
			return nil, err
		}
	}
	for _, o := range s.ClusterPolicies {
		o = o.DeepCopy()
		o.APIVersion, o.Kind = v1alpha2.GroupVersion.String(), "ClusterNetworkPolicy"
		if err := add("clusternetworkpolicy", "", o.Name, o); err != nil {
			return nil, err
		}
	}
	for _, o := range s.Antrea.All() {
		text, err := manifest(o)
		if err != nil {
			return nil, err
		}
		id := o.ID()
		files["antrea_"+strings.ToLower(id.Kind.String())+"_"+id.Namespace+"_"+id.Name+".yaml"] = text
	}
	for name, text := range s.Files {
		files[name] = text
	}
	return files, nil
}

// manifest renders an object of Antrea's API, with its kind.
func manifest(o antrea.Object) ([]byte, error) {
	data, err := json.Marshal(o)
	fields := map[string]any{}
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", o.ID().Ref(), err)
	}
	fields["apiVersion"], fields["kind"] = antrea.GroupVersion().String(), o.ID().Kind.String()
	return yaml.Marshal(fields)
}
