package migrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/datastore/strict"
	"github.com/felixlike/felixlike/model"
)

// Result is the outcome of a conversion.
type Result struct {
	// Objects are the objects of the input, in its order.
	Objects []Object `json:"objects"`
	// AllowsMore are packets that may be allowed although the originals deny them, for reasons that concern many objects. Those that
	// concern one object are among its losses.
	AllowsMore []string `json:"allowsMore,omitempty"`
	// Notes are differences that no single object shows, and what the conversion takes for granted.
	Notes []string `json:"notes,omitempty"`
	// output are the objects for felixlike: those that were converted, and those that it takes as they are.
	output []any
}

// Object is an object of the input.
type Object struct {
	Object Ref `json:"object"`
	// Becomes are the objects that it was converted to: none if it was not converted, and itself if felixlike takes it as it is.
	Becomes []Ref  `json:"becomes"`
	Losses  []Loss `json:"losses,omitempty"`
}

// Loss is a part of an object that has no counterpart.
type Loss struct {
	Field string `json:"field,omitempty"`
	// Reason says why, and the effect.
	Reason string `json:"reason"`
	// AllowsMore: packets may be allowed although the original denies them.
	AllowsMore bool `json:"allowsMore,omitempty"`
}

// String returns the loss as one line.
func (l Loss) String() string {
	text := l.Reason
	if l.Field != "" {
		text = l.Field + ": " + text
	}
	if l.AllowsMore {
		return allowsMore + text
	}
	return text
}

// allowsMore begins each line about packets that may be allowed although the originals deny them.
const allowsMore = "ALLOWS MORE: "

// Ref names an object.
type Ref struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// String returns kind, API group and name, as kubectl takes them.
func (r Ref) String() string {
	ref := model.ObjectRef{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
	if group := groupOf(r.APIVersion); group != "" && group != "networking.k8s.io" && group != "policy.networking.k8s.io" {
		ref.Kind += "." + group
	}
	return ref.String()
}

// Complete reports whether nothing is lost, and no packet may be allowed that an original denies.
func (r *Result) Complete() bool {
	if len(r.AllowsMore) > 0 {
		return false
	}
	for _, o := range r.Objects {
		if len(o.Losses) > 0 {
			return false
		}
	}
	return true
}

// conversion collects the outcome.
type conversion struct {
	options Options
	result  Result
	// fromCilium: the input has policies of Cilium.
	fromCilium bool
	// hostsMade: Calico has made all host endpoints of the input, and all are converted.
	hostsMade bool
	notes     map[string]bool
	// policies is the number of converted policies of Cilium.
	policies int
}

// note adds a note once.
func (c *conversion) note(text string) {
	if !c.notes[text] {
		c.notes[text] = true
		c.result.Notes = append(c.result.Notes, text)
	}
}

// loosen says once that packets may be allowed although the originals deny them.
func (c *conversion) loosen(text string) {
	if !slices.Contains(c.result.AllowsMore, text) {
		c.result.AllowsMore = append(c.result.AllowsMore, text)
	}
}

// row returns the outcome of an object of the input.
func (c *conversion) row(at int) *Object { return &c.result.Objects[at] }

func (o *Object) lose(field, format string, args ...any) {
	o.Losses = append(o.Losses, Loss{Field: field, Reason: fmt.Sprintf(format, args...)})
}

// loosen notes that packets may be allowed although the object denies them.
func (o *Object) loosen(field, format string, args ...any) {
	o.Losses = append(o.Losses, Loss{Field: field, Reason: fmt.Sprintf(format, args...), AllowsMore: true})
}

// refuse notes that the object is not converted at all: it denies nothing any more.
func (o *Object) refuse(field, format string, args ...any) {
	o.loosen(field, "%s; the object is not converted", fmt.Sprintf(format, args...))
}

// reasonOf returns the reason of a fault. A field that no type here has may have any meaning.
func reasonOf(f strict.Fault) string {
	if f.Reason == "unknown field" {
		return "has no counterpart"
	}
	return f.Reason
}

// emit adds the objects of a converted policy to the output.
func (c *conversion) emit(at int, objects []metav1.Object) {
	for _, o := range objects {
		c.result.output = append(c.result.output, o)
		c.row(at).Becomes = append(c.row(at).Becomes, refOf(o))
	}
}

// keep adds an object of the input to the output as it is, without what the API server adds.
func (c *conversion) keep(at int, raw json.RawMessage) error {
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	delete(object, "status")
	if meta, is := object["metadata"].(map[string]any); is {
		for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			delete(meta, field)
		}
	}
	c.result.output = append(c.result.output, object)
	c.row(at).Becomes = []Ref{c.row(at).Object}
	return nil
}

// Options are the parameters of a conversion.
type Options struct {
	// ClusterCIDRs are the prefixes of all pods and nodes.
	ClusterCIDRs []netip.Prefix
}

func refOf(o metav1.Object) Ref {
	ref := Ref{Namespace: o.GetNamespace(), Name: o.GetName()}
	if typed, is := o.(interface{ GetObjectKind() schema.ObjectKind }); is {
		ref.APIVersion, ref.Kind = typed.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	}
	return ref
}

// YAML returns the converted objects as documents.
func (r *Result) YAML() ([]byte, error) {
	var out bytes.Buffer
	for _, o := range r.output {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}

// groupOf returns the API group of an apiVersion.
func groupOf(apiVersion string) string {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return apiVersion
	}
	return version.Group
}
