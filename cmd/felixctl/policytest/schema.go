package policytest

import "encoding/json"

// APIVersion and Kind identify a test.
const (
	APIVersion = "felixlike.io/v1alpha1"
	Kind       = "PolicyTest"
)

// Test describes a cluster, and what the policies do in it.
type Test struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`

	file  string
	lines lines
}

// Metadata names the test.
type Metadata struct {
	Name string `json:"name"`
}

// Spec is the content of a test.
type Spec struct {
	// Cluster is added to the Nodes, Namespaces and Pods of the files.
	Cluster Cluster `json:"cluster,omitzero"`
	// Expect has texts, as in "shop/web -> shop/db 5432/tcp: allow". YAML reads one without quotes as an object with one field.
	Expect []json.RawMessage `json:"expect"`
}

// Cluster is what policies can distinguish.
type Cluster struct {
	// Families are IPv4, IPv6 or both; IPv4 if none is given.
	Families []string `json:"families,omitempty"`
	// PodCIDRs have the addresses that pods can get.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// Isolation is the agent's setting of that name: namespaces or none.
	Isolation  string      `json:"isolation,omitempty"`
	Nodes      []Node      `json:"nodes,omitempty"`
	Namespaces []Namespace `json:"namespaces,omitempty"`
	Pods       []Pod       `json:"pods,omitempty"`
}

func (t *Test) isolated() bool { return t.Spec.Cluster.Isolation == "namespaces" }

// Node is a node of the cluster.
type Node struct {
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	Addresses []string          `json:"addresses,omitempty"`
}

// Namespace is a namespace with labels. Those without need not be given.
type Namespace struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Pod is a pod of the cluster. Without addresses it gets one of each family.
type Pod struct {
	// Name is NAMESPACE/NAME.
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Node        string            `json:"node,omitempty"`
	HostNetwork bool              `json:"hostNetwork,omitempty"`
	Addresses   []string          `json:"addresses,omitempty"`
	Ports       []Port            `json:"ports,omitempty"`
}

// Port is a port with a name, by which policies can refer to it.
type Port struct {
	Name string `json:"name"`
	Port int32  `json:"port"`
	// Protocol is TCP if it is not given.
	Protocol string `json:"protocol,omitempty"`
}
