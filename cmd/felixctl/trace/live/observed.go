package live

import "github.com/felixlike/felixlike/cmd/felixctl/trace"

// Observed is what was seen of a real packet.
type Observed struct {
	trace.Opinion
	// Known tells whether it could be seen what became of the packet.
	Known bool         `json:"known"`
	Steps []trace.Step `json:"steps,omitempty"`
	// Raw is what Open vSwitch said, in its own words.
	Raw []string `json:"raw,omitempty"`
	// Notes say what was not watched, and why.
	Notes []string `json:"notes,omitempty"`
}
