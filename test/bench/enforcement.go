package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/test/bench/workload"
)

const (
	// settledFor is the time for which all probes must agree until a change is over.
	settledFor = 100 * time.Millisecond
	// settledProbes is the least number of probes with a known result.
	settledProbes = 20
	// probeGrace bounds how much later than its follower a probe may arrive.
	probeGrace = 20 * time.Millisecond
	// look is the time between two polls.
	look = 10 * time.Millisecond
	// enforceTimeout bounds one change.
	enforceTimeout = time.Minute
	// maxPause is the longest pause before a change. It varies, so that changes
	// do not fall in step with periodic work.
	maxPause = 50 * time.Millisecond
	// apiAddress is the API server's, in the namespace of the node.
	apiAddress = "127.0.0.1:16443"
	// gateLabel is the label by which the changed policy allows the probes.
	gateLabel = "gate"
)

// enforcement measures the time from a change in an API server to the packets,
// under each backend in turn.
func (r *run) enforcement(ctx context.Context) (_ *Enforcement, err error) {
	type of struct {
		change  Change
		backend string
	}
	rounds := map[of][][]enforced{}
	n, err := startLabNode(ctx, r.Backends[0].Name, r.Datapath)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	g, err := n.serveAPI(ctx, workload.Point{Policies: r.Profile.Among, Peers: 1})
	if err != nil {
		return nil, err
	}
	defer g.server.Stop()
	for round := range r.Rounds {
		for _, b := range r.backendNames() {
			err := r.takeTurn(round, b, func() error {
				seen, err := r.enforce(ctx, g, b)
				for c, all := range seen {
					rounds[of{c, b}] = append(rounds[of{c, b}], all)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	e := &Enforcement{
		Interval: probeInterval.Seconds(), Policies: r.Profile.Among, Datapath: r.Datapath,
		Datastore: "an API server, by watch",
	}
	for _, c := range Changes() {
		for _, b := range r.backendNames() {
			result, err := newEnforcementResult(b, c, rounds[of{c, b}])
			if err != nil {
				return nil, err
			}
			e.Results = append(e.Results, result)
		}
	}
	return e, nil
}

// enforce changes the policy and the label to and fro under a backend, and returns the
// observations of the probes.
func (r *run) enforce(ctx context.Context, n *gate, backend string) (_ map[Change][]enforced, err error) {
	if err := n.use(ctx, backend); err != nil {
		return nil, err
	}
	r.Progress.Case(fmt.Sprintf("%d times denied and allowed", r.Profile.Changes))
	p, err := startProber(ctx, n.wire.client, n.labNode.server, n.wire.target.Addr(), n.probes)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, p.close())
		n.probes = p.next()
	}()
	if _, err := p.until(ctx, Allowed, time.Now()); err != nil {
		return nil, fmt.Errorf("before the first change: %w", err)
	}
	all := map[Change][]enforced{}
	for range r.Profile.Changes {
		for _, c := range Changes() {
			time.Sleep(rand.N(maxPause))
			e, err := n.change(ctx, p, c)
			if err != nil {
				return nil, fmt.Errorf("change by which packets are %s: %w", c, err)
			}
			all[c] = append(all[c], e)
		}
	}
	return all, nil
}

// change makes one change.
func (n *gate) change(ctx context.Context, p *prober, c Change) (enforced, error) {
	p.forget(time.Now().Add(-probeGrace))
	written, err := n.write(ctx, c)
	if err != nil {
		return enforced{}, err
	}
	probes, err := p.until(ctx, c, written)
	if err != nil {
		return enforced{}, err
	}
	e := c.in(probes, written)
	a, err := n.applied(ctx, written)
	if err != nil {
		return enforced{}, err
	}
	e.begun, e.programmed = a.At.Sub(written), a.At.Add(a.Duration).Sub(written)
	return e, nil
}

// applied waits until the agent has programmed something since a moment, and
// returns when.
func (n *labNode) applied(ctx context.Context, since time.Time) (control.Apply, error) {
	ctx, cancel := context.WithTimeout(ctx, enforceTimeout)
	defer cancel()
	for {
		status, err := n.agent().Status(ctx)
		if err != nil {
			return control.Apply{}, err
		}
		if status.LastApply.At.After(since) {
			return status.LastApply, nil
		}
		time.Sleep(look)
	}
}

// until waits until all probes have found a change for a while, and returns those
// that were sent since the moment.
func (p *prober) until(ctx context.Context, c Change, since time.Time) ([]probe, error) {
	for deadline := time.Now().Add(enforceTimeout); ; {
		time.Sleep(look)
		to := time.Now().Add(-probeGrace)
		probes, err := p.seen(since, to)
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case c.settled(probes, to):
			return probes, nil
		case time.Now().After(deadline):
			return nil, fmt.Errorf("after %s, not all packets are %s", enforceTimeout, c)
		}
	}
}

// found reports whether a probe found the change.
func (c Change) found(p probe) bool { return p.arrived == c.allows() }

// settled reports whether all recent probes with a known result have found the change.
func (c Change) settled(probes []probe, now time.Time) bool {
	known := 0
	for _, x := range slices.Backward(probes) {
		switch {
		case !x.sent.After(now.Add(-settledFor)):
			return known >= settledProbes
		case !c.found(x):
			return false
		}
		known++
	}
	return false
}

// in computes when probes found the change, after they all do. Since the change
// takes a while, they do not at first.
func (c Change) in(probes []probe, written time.Time) enforced {
	var e enforced
	for i, x := range probes {
		if !c.found(x) {
			e.last = 0
			continue
		}
		at := x.sent.Sub(written)
		if e.first == 0 {
			e.first = at
			if i > 0 {
				e.resolution = x.sent.Sub(probes[i-1].sent)
			}
		}
		if e.last == 0 {
			e.last = at
		}
	}
	return e
}
