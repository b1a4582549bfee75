package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// OnlyPolicies returns a text with the objects of a file that a policy is made of, and its Services if wanted. Of all other objects, such as Secrets, it has
// apiVersion, kind, name and namespace alone, so that a reader can name them. A file without others is returned as it is. An error names the file.
func OnlyPolicies(name string, data []byte, services bool) ([]byte, error) {
	var out [][]byte
	whole := true
	add := func(d document, kept bool) error {
		text := []byte(d.json)
		if kept && d.err != nil {
			return fmt.Errorf("%s: %w", name, d.err)
		}
		if !kept {
			whole, text = false, identityOf(d.json)
		}
		out = append(out, text)
		return nil
	}
	for _, d := range documents(name, data) {
		if d.json == nil {
			return nil, fmt.Errorf("%s: %w", name, d.err)
		}
		list := struct {
			APIVersion, Kind string
			Items            []json.RawMessage
		}{}
		if err := json.Unmarshal(d.json, &list); err != nil || !strings.HasSuffix(list.Kind, "List") {
			if err := add(d, ofPolicies(d.json, services)); err != nil {
				return nil, err
			}
			continue
		}
		if d.err != nil {
			return nil, fmt.Errorf("%s: %w", name, d.err)
		}
		of, known := parseKind(list.APIVersion, strings.TrimSuffix(list.Kind, "List"))
		for _, item := range list.Items {
			if known {
				item = withKind(item, of)
			}
			if err := add(document{json: item}, ofPolicies(item, services)); err != nil {
				return nil, err
			}
		}
	}
	if whole {
		return data, nil
	}
	return bytes.Join(out, []byte("\n---\n")), nil
}

// ofPolicies reports whether an object is a policy, one that policies use, or a Service that is wanted.
func ofPolicies(object json.RawMessage, services bool) bool {
	var o struct{ APIVersion, Kind string }
	if err := json.Unmarshal(object, &o); err != nil {
		return false
	}
	k, known := parseKind(o.APIVersion, o.Kind)
	_, isAntrea := k.antrea()
	return known && (k.isPolicy() || isAntrea || services && k == kindService)
}

// identityOf leaves of an object what names it.
func identityOf(object json.RawMessage) []byte {
	var o struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
		Metadata   struct {
			Name      string `json:"name,omitempty"`
			Namespace string `json:"namespace,omitempty"`
		} `json:"metadata,omitzero"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return []byte("{}")
	}
	text, err := json.Marshal(o)
	if err != nil {
		return []byte("{}")
	}
	return text
}
