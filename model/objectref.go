package model

import (
	"cmp"
	"strings"

	"github.com/felixlike/felixlike/internal/printable"
)

// ObjectRef names an object as the user wrote it.
type ObjectRef struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Compare orders by kind, namespace, name.
func (r ObjectRef) Compare(o ObjectRef) int {
	return cmp.Or(cmp.Compare(r.Kind, o.Kind), cmp.Compare(r.Namespace, o.Namespace), cmp.Compare(r.Name, o.Name))
}

// NodeRef names a node.
func NodeRef(name string) ObjectRef { return ObjectRef{Kind: "Node", Name: name} }

// String returns "kind/namespace/name", nearly as kubectl takes it, and "kind name" for what is of no API, such as a file. A terminal
// can show it: manifests may have any name.
func (r ObjectRef) String() string {
	kind := strings.ToLower(r.Kind)
	switch {
	case r.Namespace != "":
		kind += "/" + r.Namespace + "/"
	case kind == r.Kind:
		kind += " "
	default:
		kind += "/"
	}
	return printable.String(kind + r.Name)
}
