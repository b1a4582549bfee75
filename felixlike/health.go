package felixlike

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/felixlike/metrics"
)

const (
	// stuckAfter is the time without a heartbeat, and past a stage's deadline,
	// after which the agent counts as stuck. Five heartbeats: a busy machine
	// must not have its agents restarted.
	stuckAfter = 5 * heartbeat
	// scrapeTimeout bounds how long a scrape waits for the loop.
	scrapeTimeout = time.Second
)

// beat notes that the loop moves.
func (d *Driver) beat() { d.lastBeat.Store(int64(time.Since(d.started))) }

// Alive returns why the agent is stuck, or nil: its loop does not move, a stage does
// not end although its deadline has passed, or what it wants is not known any more. It does not wait for
// the loop.
func (d *Driver) Alive() error {
	now := time.Since(d.started)
	if silent := now - time.Duration(d.lastBeat.Load()); silent > stuckAfter {
		return fmt.Errorf("the loop has not moved for %s", silent.Round(time.Second))
	}
	for _, r := range *d.visible.Load() {
		if r.broken.Load() {
			return fmt.Errorf("stage %s cannot be programmed any more: a manager has panicked", r.Name)
		}
		if end := time.Duration(r.mustEnd.Load()); end != 0 && now > end+stuckAfter {
			return fmt.Errorf("stage %s is %s past its deadline", r.Name, (now - end).Round(time.Second))
		}
	}
	return nil
}

// Ready tells whether all that is known is programmed.
func (d *Driver) Ready(ctx context.Context) health.Readiness {
	var r health.Readiness
	if err := d.ask(ctx, func() { r = d.readiness() }); err != nil {
		r.Missing = []string{"the loop does not answer: " + err.Error()}
	}
	return r
}

func (d *Driver) readiness() health.Readiness {
	r := health.Readiness{Missing: d.unknown()}
	switch behind := time.Since(d.behind); {
	case len(r.Missing) > 0:
	case d.lastApply.Error != "":
		r.Missing = append(r.Missing, "programming the dataplane failed: "+d.lastApply.Error)
	case d.programmed == 0:
		r.Missing = append(r.Missing, "nothing is programmed yet")
	case !d.behind.IsZero() && behind > d.cfg.ReadyGrace:
		r.Missing = append(r.Missing, fmt.Sprintf("revision %d of %d is programmed, the next one has waited for %s",
			d.programmed, d.observed, behind.Round(time.Second)))
	}
	for _, q := range d.quarantine.view().quarantined {
		r.Notes = append(r.Notes, quarantineReason(q))
	}
	return r
}

// unknown returns what is not known that has to be before anything is
// programmed.
func (d *Driver) unknown() []string {
	var missing []string
	if !d.sourceSynced {
		missing = append(missing, "the datastore's first listing is not complete")
	}
	if !d.attachmentsSynced {
		missing = append(missing, "the attachments of the pods are not known")
	}
	if !d.addressesKnown {
		missing = append(missing, "the addresses of this node are not known")
	}
	if d.sourceSynced && d.tracker.nodes[d.cfg.Node] == nil {
		missing = append(missing, "node "+d.cfg.Node+" is not in the datastore")
	}
	return missing
}

// Metrics answers scrapes.
func (d *Driver) Metrics() http.Handler { return d.metrics.Handler() }

// scrape returns the state of the moment, unless the loop is stuck.
func (d *Driver) scrape() (metrics.State, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var s metrics.State
	err := d.ask(ctx, func() { s = d.measure() })
	return s, err == nil
}

func (d *Driver) measure() metrics.State {
	view := d.quarantine.view()
	s := metrics.State{
		Synced: d.sourceSynced, Pending: len(d.tracker.pending), Quarantined: len(view.quarantined),
		Endpoints: map[string]int{
			control.EndpointProgrammed: 0, control.EndpointPending: 0, control.EndpointClosed: 0, control.EndpointDetached: 0,
		},
	}
	for _, r := range d.runners {
		s.Rules += r.rules
		s.Elements += r.elements
		s.Flows += r.flows
	}
	for _, id := range d.tracker.pods() {
		state, _ := d.tracker.state(id, view.closed)
		s.Endpoints[state]++
	}
	return s
}
