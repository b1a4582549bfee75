package model

import "cmp"

// PodID names a pod: its namespace and name.
type PodID struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns "namespace/name".
func (id PodID) String() string { return id.Namespace + "/" + id.Name }

// Ref returns the reference to the pod.
func (id PodID) Ref() ObjectRef {
	return ObjectRef{Kind: "Pod", Namespace: id.Namespace, Name: id.Name}
}

// Compare orders pods by namespace, then name.
func (id PodID) Compare(o PodID) int {
	return cmp.Or(cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}
