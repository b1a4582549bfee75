package bench

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/internal/measure"
)

// Change is a change of policy that packets feel.
type Change string

const (
	// Denied is a policy that denies allowed packets.
	Denied Change = "denied"
	// Allowed is a policy that allows denied packets.
	Allowed Change = "allowed"
)

// Changes returns both changes, in the order in which they are made.
func Changes() []Change { return []Change{Denied, Allowed} }

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
	for i := range e.Results {
		if e.Results[i].Backend == backend && e.Results[i].Change == c {
			return &e.Results[i]
		}
	}
	return nil
}

// enforced is the observation of one change.
type enforced struct {
	first, last, begun, programmed, resolution time.Duration
}

// enforcementResults are the results while they come in.
type enforcementResults []*enforcementResult

type enforcementResult struct {
	EnforcementResult
	first, last, begun, programmed, resolution *measure.Latencies
}

func newEnforcementResults(backends []string) enforcementResults {
	var all enforcementResults
	for _, c := range Changes() {
		for _, b := range backends {
			all = append(all, &enforcementResult{
				EnforcementResult: EnforcementResult{Backend: b, Change: c},
				first:             measure.NewLatencies(), last: measure.NewLatencies(), begun: measure.NewLatencies(), programmed: measure.NewLatencies(), resolution: measure.NewLatencies(),
			})
		}
	}
	return all
}

// add adds the changes of a round.
func (all enforcementResults) add(backend string, c Change, seen []enforced) error {
	for _, r := range all {
		if r.Backend == backend && r.Change == c {
			return r.add(seen)
		}
	}
	return fmt.Errorf("no results of %s, %s", backend, c)
}

func (r *enforcementResult) add(seen []enforced) error {
	for _, of := range []struct {
		into *measure.Latencies
		get  func(enforced) time.Duration
	}{
		{r.first, func(e enforced) time.Duration { return e.first }},
		{r.last, func(e enforced) time.Duration { return e.last }},
		{r.begun, func(e enforced) time.Duration { return e.begun }},
		{r.programmed, func(e enforced) time.Duration { return e.programmed }},
		{r.resolution, func(e enforced) time.Duration { return e.resolution }},
	} {
		var all []time.Duration
		for _, e := range seen {
			all = append(all, of.get(e))
		}
		if err := of.into.Record(all); err != nil {
			return fmt.Errorf("%s, %s: %w", r.Backend, r.Change, err)
		}
	}
	return nil
}

// collect returns the results with measurements.
func (all enforcementResults) collect() []EnforcementResult {
	var out []EnforcementResult
	for _, r := range all {
		if r.First = r.first.Latency(); r.First.Count == 0 {
			continue
		}
		r.Last, r.Resolution = r.last.Latency(), r.resolution.Latency()
		r.Begun, r.Programmed = r.begun.Latency(), r.programmed.Latency()
		out = append(out, r.EnforcementResult)
	}
	return out
}
