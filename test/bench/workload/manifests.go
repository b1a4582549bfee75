package workload

import (
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/datastore"
)

// documentsPerFile is the number of objects in a file.
const documentsPerFile = 100

// WriteManifests writes every object as YAML into a directory.
func (w Workload) WriteManifests(dir string) error {
	var text []byte
	events := w.Events()
	for i, e := range events {
		document, err := yaml.Marshal(object(e))
		if err != nil {
			return fmt.Errorf("write manifests: %w", err)
		}
		text = append(append(text, document...), "---\n"...)
		if (i+1)%documentsPerFile == 0 || i+1 == len(events) {
			name := filepath.Join(dir, fmt.Sprintf("objects-%04d.yaml", i/documentsPerFile))
			if err := os.WriteFile(name, text, 0o644); err != nil {
				return fmt.Errorf("write manifests: %w", err)
			}
			text = text[:0]
		}
	}
	return nil
}

// object returns the object of an event, with its type.
func object(e datastore.Event) any {
	typed := func(version, kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: version, Kind: kind} }
	switch e := e.(type) {
	case datastore.NodeSet:
		o := *e.Node
		o.TypeMeta = typed("v1", "Node")
		return o
	case datastore.NamespaceSet:
		o := *e.Namespace
		o.TypeMeta = typed("v1", "Namespace")
		return o
	case datastore.PodSet:
		o := *e.Pod
		o.TypeMeta = typed("v1", "Pod")
		return o
	case datastore.NetworkPolicySet:
		o := *e.Policy
		o.TypeMeta = typed("networking.k8s.io/v1", "NetworkPolicy")
		return o
	}
	return nil
}
