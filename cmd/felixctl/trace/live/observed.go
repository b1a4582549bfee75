package live

import "github.com/felixlike/felixlike/cmd/felixctl/trace"

// Observed is the observation of a real packet.
type Observed struct {
	trace.Opinion
	// Known reports whether the packet's fate was visible.
	Known bool         `json:"known"`
	Steps []trace.Step `json:"steps,omitempty"`
	// Raw is the output of Open vSwitch.
	Raw []string `json:"raw,omitempty"`
	// Notes name the parts that were not watched, and why.
	Notes []string `json:"notes,omitempty"`
}
