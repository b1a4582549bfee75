package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// packets measures the traffic of pods without an agent, and under each backend
// at every point of the profile. The backend is changed on the live node, so
// that pods, bridge and machine are the same for all.
func (r *run) packets(ctx context.Context, n *labNode) (_ *Packets, err error) {
	paths, err := startPaths(ctx, r.Datapath)
	defer func() {
		for _, p := range paths {
			err = errors.Join(err, p.stop())
		}
	}()
	if err != nil {
		return nil, err
	}
	names := r.pathsOfBackends()
	results := newPacketsResults(names, r.Profile.Points)
	turn := func(round int, name, title string, at workload.Point, w *wire, prepare func() error) error {
		return r.takeTurn(round, title, func() error {
			if err := prepare(); err != nil {
				return err
			}
			return r.traffic(ctx, w, func(kind TrafficKind, s sample) error { return results.add(name, at, kind, s) })
		})
	}
	for round := range r.Rounds {
		for _, name := range withoutAgent() {
			if err := turn(round, name, name, workload.Point{}, paths[name].wire, func() error { return nil }); err != nil {
				return nil, err
			}
		}
		for _, at := range r.Profile.Points {
			if err := n.set(ctx, at); err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			for _, name := range names {
				if err := turn(round, name, name+", "+at.String(), at, n.wire, func() error { return n.use(ctx, name) }); err != nil {
					return nil, err
				}
			}
		}
	}
	return &Packets{
		Duration: r.Profile.Traffic.Seconds(), Datapath: r.Datapath, Nodes: len(n.nodes), Floor: PlainVeth, RulesPerPolicy: workload.RulesPerReachedPolicy,
		Points: slices.Clone(r.Profile.Points), Results: results.collect(),
	}, nil
}

// pathsOfBackends returns the backends. On the kernel's datapath each netfilter backend
// follows once more, with offload. All of them take the traffic modes in turn, if there are any.
func (c *Config) pathsOfBackends() []string {
	var names []string
	for _, name := range c.backendNames() {
		names = append(names, c.inModes(name)...)
		if c.Datapath == ovsdb.DatapathSystem && name != config.OpenFlow {
			names = append(names, c.inModes(name+plus+offloaded)...)
		}
	}
	return names
}

func (c *Config) inModes(name string) (names []string) {
	if len(c.TrafficModes) == 0 {
		return []string{name}
	}
	for _, mode := range c.TrafficModes {
		names = append(names, name+plus+mode)
	}
	return names
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
