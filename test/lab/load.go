package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/internal/files"
)

// Bounds of Load.
const (
	maxManifest  = 64 << 20
	fetchTimeout = 30 * time.Second
)

// Load reads Kubernetes objects from YAML files, from the *.yaml and *.yml files of
// directories, from http and https URLs, and from standard input for "-". A List stands
// for its items. Unknown fields are errors. Objects of kinds that a lab does not use are
// passed over; ignored names them.
func Load(ctx context.Context, paths ...string) (s State, ignored []string, err error) {
	for _, path := range paths {
		sources := []string{path}
		if path != "-" && !isURL(path) {
			if sources, err = yamlFiles(path); err != nil {
				return State{}, nil, err
			}
		}
		for _, source := range sources {
			text, err := readManifest(ctx, source)
			if err != nil {
				return State{}, nil, fmt.Errorf("load: %w", err)
			}
			more, err := s.add(text)
			if err != nil {
				return State{}, nil, fmt.Errorf("load %s: %w", source, err)
			}
			ignored = append(ignored, more...)
		}
	}
	return s, ignored, nil
}

func isURL(path string) bool {
	return strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://")
}

func readManifest(ctx context.Context, source string) ([]byte, error) {
	switch {
	case source == "-":
		return io.ReadAll(files.Bounded(os.Stdin, maxManifest))
	case isURL(source):
		return fetch(ctx, source)
	}
	return files.Read(source, maxManifest)
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(files.Bounded(response.Body, maxManifest))
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

// Parse reads Kubernetes objects from YAML. Other than in Load, an object of a kind that
// a lab does not use is an error. name is for errors.
func Parse(name string, text []byte) (State, error) {
	var s State
	ignored, err := s.add(text)
	if err == nil && len(ignored) > 0 {
		kind, _, _ := strings.Cut(ignored[0], " ")
		err = fmt.Errorf("kind %q: a lab takes Node, Namespace, Pod, NetworkPolicy, ClusterNetworkPolicy the kinds of crd.antrea.io and the Egress of felixlike.io", kind)
	}
	if err != nil {
		return State{}, fmt.Errorf("load %s: %w", name, err)
	}
	return s, nil
}

// add decodes the documents of one file. It returns the objects of other kinds, by name.
func (s *State) add(text []byte) (ignored []string, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for i := 1; ; i++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return ignored, nil
		}
		if err == nil {
			var more []string
			more, err = s.addDocument(doc)
			ignored = append(ignored, more...)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
	}
}

func (s *State) addDocument(doc []byte) (ignored []string, err error) {
	var meta struct {
		metav1.TypeMeta
		Metadata metav1.ObjectMeta `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(doc, &meta); err != nil {
		return nil, err
	}
	if kind, isList := strings.CutSuffix(meta.Kind, "List"); isList {
		return s.addItems(metav1.TypeMeta{APIVersion: meta.APIVersion, Kind: kind}, meta.Items)
	}
	for _, k := range antrea.Kinds() {
		if meta.APIVersion == k.GroupVersion().String() && meta.Kind == k.String() {
			o := k.New()
			if err := yaml.UnmarshalStrict(doc, o); err != nil {
				return nil, err
			}
			if o.GetName() == "" {
				return nil, errors.New("metadata.name is missing")
			}
			s.Antrea.Put(o)
			return nil, nil
		}
	}
	switch meta.Kind {
	case "":
		if len(bytes.TrimSpace(doc)) == 0 || onlyComments(doc) {
			return nil, nil
		}
		return nil, errors.New("no kind")
	case "Node":
		return nil, decode(doc, &s.Nodes, func(o *corev1.Node) metav1.Object { return o })
	case "Namespace":
		return nil, decode(doc, &s.Namespaces, func(o *corev1.Namespace) metav1.Object { return o })
	case "Pod":
		return nil, decode(doc, &s.Pods, func(o *corev1.Pod) metav1.Object { return o })
	case "NetworkPolicy":
		return nil, decode(doc, &s.Policies, func(o *networkingv1.NetworkPolicy) metav1.Object { return o })
	case "ClusterNetworkPolicy":
		return nil, decode(doc, &s.ClusterPolicies, func(o *v1alpha2.ClusterNetworkPolicy) metav1.Object { return o })
	}
	name := meta.Metadata.Name
	if meta.Metadata.Namespace != "" {
		name = meta.Metadata.Namespace + "/" + name
	}
	return []string{meta.Kind + " " + name}, nil
}

// addItems adds the items of a List, or of the list of one kind: its items may leave out apiVersion and kind.
func (s *State) addItems(of metav1.TypeMeta, items []json.RawMessage) (ignored []string, err error) {
	for i, item := range items {
		var fields map[string]any
		if err = yaml.Unmarshal(item, &fields); err == nil && fields["kind"] == nil && of.Kind != "" {
			fields["apiVersion"], fields["kind"] = of.APIVersion, of.Kind
			item, err = json.Marshal(fields)
		}
		var more []string
		if err == nil {
			more, err = s.addDocument(item)
		}
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		ignored = append(ignored, more...)
	}
	return ignored, nil
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

// Empty reports whether the state has no object.
func (s State) Empty() bool {
	return len(s.Nodes)+len(s.Namespaces)+len(s.Pods)+len(s.Policies)+len(s.ClusterPolicies)+len(s.Antrea.All()) == 0
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
	for _, x := range o.Antrea.All() {
		s.Antrea.Put(x)
	}
	return s
}
