package workload

import (
	"fmt"
	"os"
	"path/filepath"

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

// object returns the object of an event.
func object(e datastore.Event) any {
	switch e := e.(type) {
	case datastore.NodeSet:
		return e.Node
	case datastore.NamespaceSet:
		return e.Namespace
	case datastore.PodSet:
		return e.Pod
	case datastore.NetworkPolicySet:
		return e.Policy
	}
	return nil
}
