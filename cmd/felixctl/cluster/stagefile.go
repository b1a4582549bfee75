package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/model"
)

// printStagedFile prints the objects of a file. Policies get the annotation; their comments and the order of fields stay.
func printStagedFile(path string, in io.Reader, out io.Writer) error {
	return files.EachManifest([]string{path}, in, func(name string, data []byte) error {
		all, policies, err := stageAll(data)
		if err == nil && policies == 0 {
			err = errors.New("it has no policy that can be staged")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		e := yaml.NewEncoder(out)
		e.SetIndent(2)
		for _, object := range all {
			if err := e.Encode(object); err != nil {
				return err
			}
		}
		return e.Close()
	})
}

// stageAll returns the objects of a text, with the annotation on policies, and the number of these.
func stageAll(data []byte) (all []*yaml.Node, policies int, err error) {
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		switch err := d.Decode(&document); {
		case errors.Is(err, io.EOF):
			return all, policies, nil
		case err != nil:
			return nil, 0, err
		}
		n, err := stageObject(document.Content[0])
		if err != nil {
			return nil, 0, err
		}
		all, policies = append(all, &document), policies+n
	}
}

// stageObject gives an object the annotation if it is a policy, or the items if it is a list. It returns the number of policies.
func stageObject(o *yaml.Node) (policies int, err error) {
	if items := field(o, "items"); items != nil {
		for _, item := range items.Content {
			n, err := stageObject(item)
			if err != nil {
				return 0, err
			}
			policies += n
		}
		return policies, nil
	}
	apiVersion, kind := field(o, "apiVersion"), field(o, "kind")
	if apiVersion == nil || kind == nil || !canBeStaged(apiVersion.Value, kind.Value) {
		return 0, nil
	}
	metadata := field(o, "metadata")
	if metadata == nil || metadata.Kind != yaml.MappingNode {
		return 0, fmt.Errorf("line %d: %s: metadata: it must be an object with the name", o.Line, kind.Value)
	}
	annotations := field(metadata, "annotations")
	if annotations == nil {
		annotations = &yaml.Node{Kind: yaml.MappingNode}
		set(metadata, "annotations", annotations)
	}
	if annotations.Tag == "!!null" {
		*annotations = yaml.Node{Kind: yaml.MappingNode}
	}
	if annotations.Kind != yaml.MappingNode {
		return 0, fmt.Errorf("line %d: %s: metadata.annotations: it must be an object", annotations.Line, kind.Value)
	}
	value := field(annotations, model.EnforceAnnotation)
	if value == nil {
		value = &yaml.Node{}
		set(annotations, model.EnforceAnnotation, value)
	}
	*value = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: "no", LineComment: value.LineComment}
	return 1, nil
}

// field returns the value of a field, nil if there is none.
func field(o *yaml.Node, name string) *yaml.Node {
	for i := 0; o.Kind == yaml.MappingNode && i+1 < len(o.Content); i += 2 {
		if o.Content[i].Value == name {
			return o.Content[i+1]
		}
	}
	return nil
}

// set adds a field.
func set(o *yaml.Node, name string, value *yaml.Node) {
	o.Content = append(o.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
}
