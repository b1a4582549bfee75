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
	// Service is the Service of the destination address, before translation.
	Service string `json:"service,omitempty"`
	// Verdict is "allowed" or "denied" by the programmed state, with the reason.
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	// Policies is the verdict of the Kubernetes objects; Programmed is the packet's
	// path through the state of the nodes; Live is the path of a real packet.
	Policies   *trace.Judgement `json:"policies"`
	Programmed []programmed     `json:"programmed"`
	Live       *live.Observed   `json:"live,omitempty"`
	// Disagreement describes the contradiction between the ways of looking. It is a
	// bug, unless Because explains it.
	Disagreement string `json:"disagreement,omitempty"`
	Because      string `json:"because,omitempty"`
	// Notes are the limits of the answer.
	Notes []string `json:"notes,omitempty"`
}

// programmed is the packet's path through the state of one backend.
type programmed struct {
	Backend string `json:"backend"`
	// Wanted reports that the backend is not in force: the path is through its desired state.
	Wanted bool        `json:"wanted,omitempty"`
	Path   *trace.Path `json:"path"`
}
