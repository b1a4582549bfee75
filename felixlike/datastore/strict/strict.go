// Package strict decodes objects without ignoring anything: an unknown field, one of the wrong type, or a required
// one that is absent, is a fault with a path and a reason, in the words of YAML. The sources decide the effect of a
// fault.
//
// It does no I/O. It is tested by tables, and through the sources.
package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// QuoteHint explains a frequent surprise of YAML 1.1, which Kubernetes reads: namespaces called y and labels
// called on.
const QuoteHint = " (unquoted y, n, yes, no, on and off are true and false in YAML: quote it)"

// Fault is an error in one field.
type Fault struct {
	// Field is the path inside the object, if known.
	Field  string
	Reason string
}

// Decode decodes JSON into the value that into points to. No faults means that it understood everything.
func Decode(data []byte, into any) []Fault {
	unknown, err := kjson.UnmarshalStrict(data, into)
	var faults []Fault
	if err != nil {
		faults = append(faults, faultOf(err))
	}
	for _, err := range unknown {
		faults = append(faults, faultOf(err))
	}
	faults = append(faults, emptyProtocols(into)...)
	if len(faults) > 0 {
		return faults // a misspelt field is absent too: one fault is enough
	}
	return required(data, into)
}

// Selector returns the podSelector inside the JSON of a policy's spec if every
// part of it is understood, else nil.
func Selector(spec json.RawMessage) *metav1.LabelSelector {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(spec, &fields); err != nil {
		return nil
	}
	raw, given := fields["podSelector"]
	if !given {
		return nil
	}
	selector := &metav1.LabelSelector{}
	if len(Decode(raw, selector)) > 0 {
		return nil
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return nil
	}
	return selector
}

func faultOf(err error) Fault { return Fault{Field: fieldOf(err), Reason: reasonOf(err)} }

// fieldOf returns the path of a decoding error, or "".
func fieldOf(err error) string {
	var strict kjson.FieldError
	if errors.As(err, &strict) {
		return strict.FieldPath()
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return mismatch.Field
	}
	return ""
}

// reasonOf returns a decoding error without the path that fieldOf returns.
func reasonOf(err error) string {
	var strict kjson.FieldError
	if errors.As(err, &strict) {
		reason, _, _ := strings.Cut(err.Error(), ` "`)
		return reason
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		want := typeName(mismatch)
		if mismatch.Value == "bool" && want == "a string" {
			want += QuoteHint
		}
		return fmt.Sprintf("wrong type: got %s, want %s", mismatch.Value, want)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// typeName returns the name of a Go type in YAML.
func typeName(mismatch *json.UnmarshalTypeError) string {
	if mismatch.Type == nil {
		return "another type"
	}
	name := mismatch.Type.Kind().String()
	switch {
	case name == "slice":
		return "a list"
	case name == "map" || name == "struct":
		return "an object"
	case slices.Contains([]string{"int", "int32", "int64", "uint32"}, name):
		return "an integer (" + name + ")"
	}
	return "a " + name
}
