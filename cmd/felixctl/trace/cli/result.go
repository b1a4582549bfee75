package cli

import (
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/live"
)

// result is the answer to one trace.
type result struct {
	From   string       `json:"from"`
	To     string       `json:"to"`
	Packet trace.Packet `json:"packet"`
	// Service is what the destination was the address of, before it was translated.
	Service string `json:"service,omitempty"`
	// Verdict is "allowed" or "denied" by what is programmed, with the reason.
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	// Policies is what the policies say, by the Kubernetes objects; Programmed is the
	// way through what the nodes hold; Live is the way of a real packet.
	Policies   *trace.Judgement `json:"policies"`
	Programmed []programmed     `json:"programmed"`
	Live       *live.Observed   `json:"live,omitempty"`
	// Disagreement says how the ways of looking contradict each other, which is a
	// bug, or Because explains it.
	Disagreement string `json:"disagreement,omitempty"`
	Because      string `json:"because,omitempty"`
	// Notes are what people should know about the answer.
	Notes []string `json:"notes,omitempty"`
}

// programmed is the way of the packet through what one backend holds.
type programmed struct {
	Backend string `json:"backend"`
	// Wanted tells that the backend is not in force: it is what it would program.
	Wanted bool        `json:"wanted,omitempty"`
	Path   *trace.Path `json:"path"`
}
