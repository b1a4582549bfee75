package bench

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/test/measure"
)

// Change is a change of an object that packets feel.
type Change string

const (
	// Denied is a policy that denies allowed packets.
	Denied Change = "denied"
	// Allowed is a policy that allows denied packets.
	Allowed Change = "allowed"
	// Unlabelled takes the label by which a policy allows packets from the pod that sends them.
	Unlabelled Change = "denied by a label"
	// Labelled gives it the label.
	Labelled Change = "allowed by a label"
)

// Changes returns all changes, in the order in which they are made.
func Changes() []Change { return []Change{Denied, Allowed, Unlabelled, Labelled} }

// allows reports whether packets are allowed after the change.
func (c Change) allows() bool { return c == Allowed || c == Labelled }

// Enforcement is the time from an object to the packets.
type Enforcement struct {
	// Interval is the time between two probes that was asked for, Policies how
	// many others apply to the pod that is probed.
	Interval float64 `json:"probeIntervalSeconds"`
	Policies int     `json:"policies"`
	Datapath string  `json:"datapath"`
	// Datastore received the object; Quiet is its deliberate wait for further
	// changes.
	Datastore string              `json:"datastore"`
	Quiet     float64             `json:"datastoreQuietSeconds"`
	Results   []EnforcementResult `json:"results"`
}

// EnforcementResult is one change under one backend. Every probe is the first
// packet of a new connection. Times count from the moment before the
// object was written, over the changes of all rounds.
type EnforcementResult struct {
	Backend string `json:"backend"`
	Change  Change `json:"change"`
	// First is until the first probe that found the change, Last until the first
	// one from which on no probe found it as it was before.
	First measure.Latency `json:"first"`
	Last  measure.Latency `json:"last"`
	// Begun is the time until the agent began to program: the datastore has noticed
	// the object, waited and read it, and the policy engine has computed the
	// updates. Programmed is the time until the agent reported the end.
	Begun      measure.Latency `json:"begun"`
	Programmed measure.Latency `json:"programmed"`
	// Resolution is the time between the first probe that found the change
	// and the one before it: the uncertainty of First.
	Resolution measure.Latency `json:"resolution"`
}

// Find returns the result of a change under a backend, or nil.
func (e *Enforcement) Find(backend string, c Change) *EnforcementResult {
	return find(e.Results, func(r *EnforcementResult) bool { return r.Backend == backend && r.Change == c })
}

// enforced is the observation of one change.
type enforced struct {
	first, last, begun, programmed, resolution time.Duration
}

// newEnforcementResult sums up the changes of all rounds.
func newEnforcementResult(backend string, c Change, rounds [][]enforced) (EnforcementResult, error) {
	r := EnforcementResult{Backend: backend, Change: c}
	for _, of := range []struct {
		into *measure.Latency
		get  func(enforced) time.Duration
	}{
		{&r.First, func(e enforced) time.Duration { return e.first }},
		{&r.Last, func(e enforced) time.Duration { return e.last }},
		{&r.Begun, func(e enforced) time.Duration { return e.begun }},
		{&r.Programmed, func(e enforced) time.Duration { return e.programmed }},
		{&r.Resolution, func(e enforced) time.Duration { return e.resolution }},
	} {
		all := measure.NewLatencies()
		for _, seen := range rounds {
			var round []time.Duration
			for _, e := range seen {
				round = append(round, of.get(e))
			}
			if err := all.Record(round); err != nil {
				return r, fmt.Errorf("%s, %s: %w", backend, c, err)
			}
		}
		*of.into = all.Latency()
	}
	return r, nil
}
