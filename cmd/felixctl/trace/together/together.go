// Package together has what nodes exchange to answer felixctl trace together. kubectl felixlike asks one agent which nodes a
// packet may meet (trace --where), has the others write what trace reads of them (--write-state), and gives it to the first (--with).
// It runs where no node is, so it knows no rule and no kernel. test/e2e tests it with two nodes.
package together

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// The hidden flags of felixctl trace.
const (
	Where = "where"
	State = "write-state"
	With  = "with"
)

// Most is the largest number of nodes that are asked together.
const Most = 8

// Others are what the standard input of trace --with has.
type Others struct {
	// Services has the Services that the question may be about, if felixlike does not serve them.
	Services []*corev1.Service `json:"services,omitempty"`
	// States has what trace --write-state has written, by node.
	States map[string][]byte `json:"states,omitempty"`
	// Silent has why other nodes gave no answer.
	Silent map[string]string `json:"silent,omitempty"`
}

// Bytes returns the JSON.
func (o *Others) Bytes() ([]byte, error) { return json.Marshal(o) }

// Silence notes why a node gave no answer.
func (o *Others) Silence(node, why string) {
	if o.Silent == nil {
		o.Silent = map[string]string{}
	}
	o.Silent[node] = why
}
