package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	for _, o := range s.objects() {
		text, err := yaml.Marshal(o)
		kind, name := strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind), o.GetName()
		if o.GetNamespace() != "" {
			name = o.GetNamespace() + "_" + name
		}
		if err != nil {
			return nil, fmt.Errorf("render %s %s: %w", kind, name, err)
		}
		files[fileName(kind+"_"+name)] = text
	}
	for _, o := range s.Antrea.All() {
		text, err := manifest(o)
		if err != nil {
			return nil, err
		}
		id := o.ID()
		files[fileName("antrea_"+strings.ToLower(id.Ref().Kind)+"_"+id.Namespace+"_"+id.Name)] = text
	}
	for name, text := range s.Files {
		files[name] = text
	}
	return files, nil
}

// maxFileName keeps files, and the temporary ones beside them, within the 255 bytes of file systems.
const maxFileName = 220

// fileName returns the name of an object's file. A hash stands for the end of a long name.
func fileName(object string) string {
	if len(object) > maxFileName {
		sum := sha256.Sum256([]byte(object))
		object = object[:maxFileName-17] + "-" + hex.EncodeToString(sum[:8])
	}
	return object + ".yaml"
}

// object is one of Kubernetes' own API.
type object interface {
	runtime.Object
	metav1.Object
}

// objects returns copies of the objects but Antrea's, with their kinds.
func (s *State) objects() []object {
	var all []object
	add := func(o object, version, kind string) {
		o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
		all = append(all, o)
	}
	for _, o := range s.Nodes {
		add(o.DeepCopy(), "v1", "Node")
	}
	for _, o := range s.Namespaces {
		add(o.DeepCopy(), "v1", "Namespace")
	}
	for _, o := range s.Pods {
		add(o.DeepCopy(), "v1", "Pod")
	}
	for _, o := range s.Policies {
		add(o.DeepCopy(), "networking.k8s.io/v1", "NetworkPolicy")
	}
	for _, o := range s.ClusterPolicies {
		add(o.DeepCopy(), v1alpha2.GroupVersion.String(), "ClusterNetworkPolicy")
	}
	return all
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
	fields["apiVersion"], fields["kind"] = o.ID().Kind.GroupVersion().String(), o.ID().Kind.String()
	return yaml.Marshal(fields)
}
