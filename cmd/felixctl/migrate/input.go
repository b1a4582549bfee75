package migrate

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/internal/files"
)

// document is an object of the input.
type document struct {
	ref    Ref
	labels map[string]string
	spec   json.RawMessage
	// specs is what a policy of Cilium can have in place of spec.
	specs json.RawMessage
	// others are unknown members beside spec.
	others []string
	raw    json.RawMessage
}

// read returns the objects of files, of the manifests of folders, and of standard input for "-".
func read(names []string, stdin io.Reader) (all []document, err error) {
	err = files.EachManifest(names, stdin, func(path string, data []byte) error {
		some, err := parse(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, some...)
		return nil
	})
	return all, err
}

// parse returns the objects of YAML documents, which JSON is too. Lists of any kind are taken apart.
func parse(data []byte) ([]document, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var all []document
	for n := 1; ; n++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		raw, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if string(raw) == "null" {
			continue
		}
		some, err := objects(raw)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		all = append(all, some...)
	}
}

func objects(raw json.RawMessage) ([]document, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Namespace string            `json:"namespace"`
			Name      string            `json:"name"`
			Labels    map[string]string `json:"labels"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
		Spec  json.RawMessage   `json:"spec"`
		Specs json.RawMessage   `json:"specs"`
	}
	var mismatch *json.UnmarshalTypeError
	if err := json.Unmarshal(raw, &head); errors.As(err, &mismatch) {
		return nil, fmt.Errorf("no object of Kubernetes: %s must not be %s", cmp.Or(mismatch.Field, "a document"), mismatch.Value)
	} else if err != nil {
		return nil, err
	}
	if head.Kind == "" || head.APIVersion == "" {
		return nil, errors.New("kind and apiVersion are required")
	}
	if strings.HasSuffix(head.Kind, "List") {
		var all []document
		for i, item := range head.Items {
			some, err := objects(item)
			if err != nil {
				return nil, fmt.Errorf("items[%d]: %w", i, err)
			}
			all = append(all, some...)
		}
		return all, nil
	}
	d := document{
		ref:    Ref{head.APIVersion, head.Kind, head.Metadata.Namespace, head.Metadata.Name},
		labels: head.Metadata.Labels, spec: head.Spec, specs: head.Specs, raw: raw,
	}
	if d.ref.Name == "" {
		return nil, fmt.Errorf("%s: metadata.name is required", head.Kind)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	for name := range members {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec", "specs", "status"}, name) {
			d.others = append(d.others, name)
		}
	}
	slices.Sort(d.others)
	return []document{d}, nil
}
