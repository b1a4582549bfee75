package lab

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"
)

// Load reads Kubernetes objects from YAML files and from the *.yaml and *.yml
// files of directories. It is strict: unknown kinds and fields are errors.
func Load(paths ...string) (State, error) {
	var s State
	for _, path := range paths {
		files, err := yamlFiles(path)
		if err != nil {
			return State{}, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return State{}, fmt.Errorf("load: %w", err)
			}
			if err := s.add(text); err != nil {
				return State{}, fmt.Errorf("load %s: %w", file, err)
			}
		}
	}
	return s, nil
}

func yamlFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(file)) {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	return files, nil
}

// Parse reads Kubernetes objects from YAML, as Load does; name is for errors.
func Parse(name string, text []byte) (State, error) {
	var s State
	if err := s.add(text); err != nil {
		return State{}, fmt.Errorf("load %s: %w", name, err)
	}
	return s, nil
}

// add decodes the documents of one file.
func (s *State) add(text []byte) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for i := 1; ; i++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.addDocument(doc)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
	}
}

func (s *State) addDocument(doc []byte) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &meta); err != nil {
		return err
	}
	switch meta.Kind {
	case "":
		if len(bytes.TrimSpace(doc)) == 0 || onlyComments(doc) {
			return nil
		}
		return errors.New("no kind")
	case "Node":
		return decode(doc, &s.Nodes, func(o *corev1.Node) metav1.Object { return o })
	case "Namespace":
		return decode(doc, &s.Namespaces, func(o *corev1.Namespace) metav1.Object { return o })
	case "Pod":
		return decode(doc, &s.Pods, func(o *corev1.Pod) metav1.Object { return o })
	case "NetworkPolicy":
		return decode(doc, &s.Policies, func(o *networkingv1.NetworkPolicy) metav1.Object { return o })
	case "ClusterNetworkPolicy":
		return decode(doc, &s.ClusterPolicies, func(o *v1alpha2.ClusterNetworkPolicy) metav1.Object { return o })
	}
	return fmt.Errorf("kind %q: a lab takes Node, Namespace, Pod, NetworkPolicy and ClusterNetworkPolicy", meta.Kind)
}

func onlyComments(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// decode adds an object to a list, in place of one of the same name.
func decode[T any](doc []byte, list *[]*T, meta func(*T) metav1.Object) error {
	object := new(T)
	if err := yaml.UnmarshalStrict(doc, object); err != nil {
		return err
	}
	if meta(object).GetName() == "" {
		return errors.New("metadata.name is missing")
	}
	*list = upsert(*list, object, meta)
	return nil
}

func upsert[T any](list []*T, object *T, meta func(*T) metav1.Object) []*T {
	same := func(o *T) bool {
		return meta(o).GetName() == meta(object).GetName() && meta(o).GetNamespace() == meta(object).GetNamespace()
	}
	if i := slices.IndexFunc(list, same); i >= 0 {
		list = slices.Clone(list)
		list[i] = object
		return list
	}
	return append(slices.Clip(list), object)
}

// Merge returns the state with the objects of another added, or in the place
// of those of the same name.
func (s State) Merge(o State) State {
	for _, x := range o.Nodes {
		s.Nodes = upsert(s.Nodes, x, func(o *corev1.Node) metav1.Object { return o })
	}
	for _, x := range o.Namespaces {
		s.Namespaces = upsert(s.Namespaces, x, func(o *corev1.Namespace) metav1.Object { return o })
	}
	for _, x := range o.Pods {
		s.Pods = upsert(s.Pods, x, func(o *corev1.Pod) metav1.Object { return o })
	}
	for _, x := range o.Policies {
		s.Policies = upsert(s.Policies, x, func(o *networkingv1.NetworkPolicy) metav1.Object { return o })
	}
	for _, x := range o.ClusterPolicies {
		s.ClusterPolicies = upsert(s.ClusterPolicies, x, func(o *v1alpha2.ClusterNetworkPolicy) metav1.Object { return o })
	}
	return s
}
