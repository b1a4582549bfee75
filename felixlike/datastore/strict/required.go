package strict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// required finds fields that the API requires and that are absent or null. Their zero values
// would mean something: priority 0 is the strongest, and an empty selector selects everything.
// An API server refuses such objects; files are not checked by one.
//
// By the conventions of the Kubernetes API, a required field is one without omitempty.
func required(data []byte, object any) []Fault {
	zero := zeroFields(reflect.ValueOf(object), nil)
	if len(zero) == 0 {
		return nil
	}
	var raw any
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil // a fault already
	}
	var faults []Fault
	for _, path := range zero {
		if absent(raw, path) {
			faults = append(faults, Fault{Field: fieldPath(path), Reason: "required"})
		}
	}
	return faults
}

// strictTypes holds one type of each package whose required fields are checked.
var strictTypes = []reflect.Type{
	reflect.TypeFor[networkingv1.NetworkPolicy](), reflect.TypeFor[v1alpha2.ClusterNetworkPolicy](), reflect.TypeFor[antrea.Egress](),
}

// checked reports whether required fields of a type are checked: those of policies and what they consist of.
func checked(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[metav1.LabelSelector](), reflect.TypeFor[metav1.LabelSelectorRequirement]():
		return true
	case reflect.TypeFor[v1alpha2.ClusterNetworkPolicyStatus]():
		return false
	}
	return slices.ContainsFunc(strictTypes, func(s reflect.Type) bool { return s.PkgPath() == t.PkgPath() })
}

// zeroFields returns the paths of the required fields inside v that have their zero values. An
// element of a path is a string, or the int of an index.
func zeroFields(v reflect.Value, path []any) [][]any {
	var all [][]any
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return zeroFields(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, zeroFields(v.Index(i), append(slices.Clip(path), i))...)
		}
	case reflect.Struct:
		if !checked(v.Type()) {
			return nil
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			below := path
			if options != "inline" {
				below = append(slices.Clip(path), name)
			}
			if options == "" && v.Field(i).IsZero() && !optional(v.Type(), name) {
				all = append(all, below)
			} else {
				all = append(all, zeroFields(v.Field(i), below)...)
			}
		}
	}
	return all
}

// optional reports whether the API marks a field without omitempty as optional, or a source sets it.
func optional(t reflect.Type, name string) bool {
	return name == "metadata" || t == reflect.TypeFor[v1alpha2.NamespacedPod]() && name == "namespaceSelector"
}

// absent reports whether decoded JSON has no value, or null, at a path.
func absent(raw any, path []any) bool {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, _ := raw.(map[string]any)
			raw = fields[step]
		case int:
			if items, _ := raw.([]any); step < len(items) {
				raw = items[step]
			}
		}
	}
	return raw == nil
}

func fieldPath(path []any) string {
	var b strings.Builder
	for i, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, step)
		}
	}
	return b.String()
}
