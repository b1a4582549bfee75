package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/model"
)

// printStagedFile prints the objects of a file. Policies get the annotation; their comments and the order of fields stay. It names the other objects on errs.
func printStagedFile(path string, in io.Reader, out, errs io.Writer) error {
	return files.EachManifest([]string{path}, in, func(name string, data []byte) error {
		all, policies, err := stageAll(data, func(text string) { fmt.Fprintf(errs, "%s: %s\n", name, text) })
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

// stageAll returns the objects of a text, with the annotation on policies, and the number of these. It notes those that are left as they are.
func stageAll(data []byte, note func(string)) (all []*yaml.Node, policies int, err error) {
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		switch err := d.Decode(&document); {
		case errors.Is(err, io.EOF):
			return all, policies, nil
		case err != nil:
			return nil, 0, err
		}
		n, err := stageObject(document.Content[0], note)
		if err != nil {
			return nil, 0, err
		}
		all, policies = append(all, &document), policies+n
	}
}

// stageObject gives an object the annotation if it is a policy, or the items if it is a list. It returns the number of policies.
func stageObject(o *yaml.Node, note func(string)) (policies int, err error) {
	var object map[string]any // with what aliases and merge keys stand for
	if err := o.Decode(&object); err != nil || object == nil {
		return 0, err
	}
	if object["items"] != nil {
		items := field(o, "items")
		if err := ownText(o, items); err != nil {
			return 0, err
		}
		for _, item := range items.Content {
			n, err := stageObject(item, note)
			if err != nil {
				return 0, err
			}
			policies += n
		}
		return policies, nil
	}
	u := unstructured.Unstructured{Object: object}
	name := fmt.Sprintf("line %d: %s", o.Line, nameOf(u))
	if !hasAnnotation(u.GetAPIVersion(), u.GetKind()) {
		note(name + " cannot be staged: it is left as it is")
		return 0, nil
	}
	if err := canBeStaged(object); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	metadata := field(o, "metadata")
	if err := ownText(o, metadata); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if metadata == nil || metadata.Kind != yaml.MappingNode {
		return 0, fmt.Errorf("%s: metadata: it must be an object with the name", name)
	}
	annotations := field(metadata, "annotations")
	if annotations == nil {
		annotations = &yaml.Node{Kind: yaml.MappingNode}
		set(metadata, "annotations", annotations)
	}
	value := field(annotations, model.EnforceAnnotation)
	if err := ownText(annotations, value); err != nil {
		return 0, fmt.Errorf("%s: metadata.annotations: %w", name, err)
	}
	if annotations.Tag == "!!null" {
		*annotations = yaml.Node{Kind: yaml.MappingNode}
	}
	if annotations.Kind != yaml.MappingNode {
		return 0, fmt.Errorf("%s: metadata.annotations: it must be an object", name)
	}
	if value == nil {
		value = &yaml.Node{}
		set(annotations, model.EnforceAnnotation, value)
	}
	*value = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: "no", LineComment: value.LineComment}
	return 1, nil
}

// ownText returns an error if nodes share text with others, which a change here would change as well, or would not reach.
func ownText(nodes ...*yaml.Node) error {
	for _, n := range nodes {
		if n != nil && (n.Kind == yaml.AliasNode || n.Anchor != "" || field(n, "<<") != nil) {
			return fmt.Errorf("line %d: an anchor, alias or merge key (<<) of YAML is not supported here: write the fields out", n.Line)
		}
	}
	return nil
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
