package model

import "github.com/felixlike/felixlike/internal/printable"

// ObjectRef names an object as the user wrote it.
type ObjectRef struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// NodeRef names a node.
func NodeRef(name string) ObjectRef { return ObjectRef{Kind: "Node", Name: name} }

// String returns "Kind namespace/name", as a terminal can show it: manifests may have any name.
func (r ObjectRef) String() string {
	if r.Namespace == "" {
		return printable.String(r.Kind + " " + r.Name)
	}
	return printable.String(r.Kind + " " + r.Namespace + "/" + r.Name)
}
