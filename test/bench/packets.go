package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/test/bench/workload"
)

// packets measures the traffic of pods without a backend, and under each
// at every point of the profile. The backend is changed on the live node, so
// that pods, bridge and machine are the same for all.
func (r *run) packets(ctx context.Context, n *labNode) (_ *Packets, err error) {
	f, err := startFloor(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	names := r.backendNames()
	results := newPacketsResults(names, r.Profile.Points)
	for round := range r.Rounds {
		err := r.takeTurn(round, NoBackend, func() error {
			return r.traffic(ctx, f.wire, func(kind TrafficKind, s sample) error {
				return results.add(NoBackend, workload.Point{}, kind, s)
			})
		})
		if err != nil {
			return nil, err
		}
		for _, at := range r.Profile.Points {
			if err := n.set(ctx, at); err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			for _, b := range names {
				err := r.takeTurn(round, b+", "+at.String(), func() error {
					if err := n.use(ctx, b); err != nil {
						return err
					}
					return r.traffic(ctx, n.wire, func(kind TrafficKind, s sample) error {
						return results.add(b, at, kind, s)
					})
				})
				if err != nil {
					return nil, err
				}
			}
		}
	}
	return &Packets{
		Duration: r.Profile.Traffic.Seconds(), Datapath: r.Datapath, Floor: PlainVeth, RulesPerPolicy: workload.RulesPerReachedPolicy,
		Points: slices.Clone(r.Profile.Points), Results: results.collect(),
	}, nil
}

// traffic measures each kind of traffic for a while, with its cost. The wait of the
// first connection is a separate figure.
func (r *run) traffic(ctx context.Context, w *wire, add func(TrafficKind, sample) error) error {
	first, err := w.connection(ctx)
	if err != nil {
		return fmt.Errorf("first connection: %w", err)
	}
	for _, kind := range TrafficKinds() {
		r.Progress.Case(string(kind))
		before, err := usageNow(w.client, w.vswitchd)
		if err != nil {
			return err
		}
		s, err := w.measure(ctx, kind, r.Profile.Traffic)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		after, err := usageNow(w.client, w.vswitchd)
		if err != nil {
			return err
		}
		after.since(before, &s)
		s.first = first
		if err := add(kind, s); err != nil {
			return err
		}
	}
	return nil
}
