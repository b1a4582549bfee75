package policytest

import (
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// lines finds the lines of fields in a document.
type lines struct{ root *yaml.Node }

// step is one field or index of a path.
var step = regexp.MustCompile(`([^.\[\]]+)|\[(\d+)\]`)

// of returns the line of a path such as "spec.expect[2]", or of as much of it as there is.
func (l lines) of(path string) int {
	at := l.root
	line := at.Line
	for _, m := range step.FindAllStringSubmatch(path, -1) {
		var next *yaml.Node
		switch {
		case m[2] != "" && at.Kind == yaml.SequenceNode:
			if i, err := strconv.Atoi(m[2]); err == nil && i < len(at.Content) {
				next = at.Content[i]
				line = next.Line
			}
		default:
			if key, value := member(at, m[1]); key != nil {
				next, line = value, key.Line
			}
		}
		if next == nil {
			return line
		}
		at = next
	}
	return line
}

// member returns the name and the value of a field, nil if there is none.
func member(of *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; of.Kind == yaml.MappingNode && i+1 < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			return of.Content[i], of.Content[i+1]
		}
	}
	return nil, nil
}
