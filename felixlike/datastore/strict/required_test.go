package strict

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// schema holds the fields of a CRD's schema that TestRequiredFields needs.
type schema struct {
	Type       string             `json:"type"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Items      *schema            `json:"items"`
	Enum       []any              `json:"enum"`
}

// complete returns a value with all properties.
func (s *schema) complete() any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type == "object":
		value := map[string]any{}
		for name, p := range s.Properties {
			value[name] = p.complete()
		}
		return value
	case s.Type == "array":
		return []any{s.Items.complete()}
	case s.Type == "integer", s.Type == "number", s.Type == "":
		return 1
	case s.Type == "boolean":
		return true
	}
	return "x"
}

// required calls visit for each required field, with the object that has it and its path.
func (s *schema) required(value any, path string, visit func(parent map[string]any, name, path string)) {
	switch value := value.(type) {
	case []any:
		s.Items.required(value[0], path+"[0]", visit)
	case map[string]any:
		for name, p := range s.Properties {
			below := strings.TrimPrefix(path+"."+name, ".")
			if slices.Contains(s.Required, name) {
				visit(value, name, below)
			}
			p.required(value[name], below, visit)
		}
	}
}

// TestRequiredFields: each field that a schema requires is a fault if it is absent or null. An
// object without it is closed: ClosedSpec's and ClosedAntrea's tests say how.
func TestRequiredFields(t *testing.T) {
	for _, test := range []struct {
		file, crd string
		empty     func() any
		want      int // required fields below spec
	}{
		{"base/clusternetworkpolicies", "clusternetworkpolicies.policy.networking.k8s.io", func() any { return &v1alpha2.ClusterNetworkPolicy{} }, 43},
		{"base/egresses", "egresses.felixlike.io", func() any { return &antrea.NodeEgress{} }, 8},
		{"base/externalippools", "externalippools.felixlike.io", func() any { return &antrea.OwnExternalIPPool{} }, 5},
		{"components/antrea-crds/crds", "tiers.crd.antrea.io", func() any { return &antrea.Tier{} }, 2},
		{"components/antrea-crds/crds", "clustergroups.crd.antrea.io", func() any { return &antrea.ClusterGroup{} }, 6},
		{"components/antrea-crds/crds", "groups.crd.antrea.io", func() any { return &antrea.Group{} }, 6},
		{"components/antrea-crds/crds", "clusternetworkpolicies.crd.antrea.io", func() any { return &antrea.ClusterNetworkPolicy{} }, 30},
		{"components/antrea-crds/crds", "networkpolicies.crd.antrea.io", func() any { return &antrea.NetworkPolicy{} }, 30},
		{"components/antrea-crds/crds", "egresses.crd.antrea.io", func() any { return &antrea.Egress{} }, 6},
		{"components/antrea-crds/crds", "externalippools.crd.antrea.io", func() any { return &antrea.ExternalIPPool{} }, 5},
	} {
		t.Run(test.crd, func(t *testing.T) {
			s := readSchema(t, "../../../deploy/"+test.file+".yaml", test.crd)
			object := s.complete().(map[string]any)
			delete(object, "status")
			object["metadata"] = map[string]any{}
			seen := 0
			s.required(object, "", func(parent map[string]any, name, path string) {
				if path == "metadata" {
					return
				}
				seen++
				checkRequired(t, object, parent, name, path, test.empty)
			})
			if seen != test.want {
				t.Errorf("the schema requires %d fields, want %d", seen, test.want)
			}
		})
	}
	t.Run("networkpolicies.networking.k8s.io", func(t *testing.T) {
		expression := map[string]any{"key": "k", "operator": "Exists"}
		block := map[string]any{"cidr": "10.0.0.0/8"}
		spec := map[string]any{
			"podSelector": map[string]any{"matchExpressions": []any{expression}},
			"ingress":     []any{map[string]any{"from": []any{map[string]any{"ipBlock": block}}}},
		}
		object := map[string]any{"spec": spec}
		empty := func() any { return &networkingv1.NetworkPolicy{} }
		checkRequired(t, object, spec, "podSelector", "spec.podSelector", empty)
		checkRequired(t, object, expression, "key", "spec.podSelector.matchExpressions[0].key", empty)
		checkRequired(t, object, expression, "operator", "spec.podSelector.matchExpressions[0].operator", empty)
		checkRequired(t, object, block, "cidr", "spec.ingress[0].from[0].ipBlock.cidr", empty)
	})
}

// checkRequired decodes an object whole, with null in one field, and without the field.
func checkRequired(t *testing.T, object, parent map[string]any, name, path string, empty func() any) {
	t.Helper()
	faults := func() []Fault {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return Decode(data, empty())
	}
	if got := faults(); len(got) > 0 {
		t.Fatalf("a complete object has faults: %v", got)
	}
	value := parent[name]
	defer func() { parent[name] = value }()
	want := []Fault{{Field: path, Reason: "required"}}
	parent[name] = nil
	if got := faults(); !slices.Equal(got, want) {
		t.Errorf("%s null: faults %v, want %v", path, got, want)
	}
	delete(parent, name)
	if got := faults(); !slices.Equal(got, want) {
		t.Errorf("%s absent: faults %v, want %v", path, got, want)
	}
}

func readSchema(t *testing.T, file, crd string) *schema {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(data), "\n---\n") {
		var object struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPI schema `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object.Metadata.Name == crd {
			return &object.Spec.Versions[0].Schema.OpenAPI
		}
	}
	t.Fatalf("%s has no %s", file, crd)
	return nil
}
