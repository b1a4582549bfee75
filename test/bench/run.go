package bench

import (
	"context"
	"errors"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/measure"
)

// versions returns the commands that print the versions of the backends' tools.
func versions(backends []worker.Backend) (commands [][]string) {
	for _, b := range backends {
		for _, t := range b.Tools {
			commands = append(commands, t.Version)
		}
	}
	return commands
}

// Run runs the benchmark. It needs root, for network namespaces; it touches
// nothing outside of those that it makes, and they end with it.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if len(cfg.Parts) == 0 {
		cfg.Parts = Parts()
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	r := &run{Config: cfg}
	report := &Report{
		Version: ReportVersion, Command: cfg.Command, Started: time.Now().UTC().Truncate(time.Second),
		Profile: cfg.Profile, Rounds: cfg.Rounds, Machine: measure.ThisMachine(ctx, versions(cfg.Backends)...), Backends: r.backendNames(),
	}
	begin := time.Now()
	r.calibration = append(r.calibration, calibrate())
	if cfg.has(Programming) {
		if err := r.programming(ctx, report); err != nil {
			return nil, err
		}
	}
	if cfg.has(EnforcementPart) || cfg.has(PacketsPart) {
		if err := r.inLab(ctx, report); err != nil {
			return nil, err
		}
	}
	if cfg.has(Programming) {
		report.Budgets = evaluate(report)
	}
	report.Took = time.Since(begin).Seconds()
	report.Machine.LoadAfter = measure.LoadAverage()
	report.Calibration = r.calibration
	return report, nil
}

// programming runs the part of that name.
func (r *run) programming(ctx context.Context, report *Report) error {
	for round := range r.Rounds {
		if err := r.round(ctx, round); err != nil {
			return err
		}
	}
	report.CheckEvery = map[string]float64{}
	for _, b := range r.Backends {
		if b.CheckEvery > 0 {
			report.CheckEvery[b.Name] = b.CheckEvery.Seconds()
		}
	}
	var err error
	if report.Results, err = collect(r.turns, r.calibration); err != nil {
		return err
	}
	report.Engine = collectEngine(r.engineTurns, r.calibration, r.Profile.EngineDivisor)
	return nil
}

// inLab runs the parts that need pods.
func (r *run) inLab(ctx context.Context, report *Report) (err error) {
	if r.has(EnforcementPart) {
		if report.Enforcement, err = r.enforcement(ctx); err != nil {
			return err
		}
	}
	if !r.has(PacketsPart) {
		return nil
	}
	n, err := startLabNode(ctx, r.pathsOfBackends()[0], r.Datapath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	report.Packets, err = r.packets(ctx, n)
	return err
}

// round gives every backend its turn, and runs the cases without a backend.
func (r *run) round(ctx context.Context, round int) error {
	for _, b := range r.Backends {
		if err := r.takeTurn(round, b.Name, func() error { return r.turn(ctx, b, round) }); err != nil {
			return err
		}
	}
	if round < objectRounds {
		return r.takeTurn(round, objectsTurn, func() error { return r.objects(ctx) })
	}
	return nil
}

// turn lets one backend have its turn.
func (r *run) turn(ctx context.Context, b worker.Backend, round int) (err error) {
	ns, err := namespace.Anonymous()
	if err != nil {
		return err
	}
	defer ns.Close()
	o, err := startSwitch(ctx, ns, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.stop()) }()
	load := worker.Task{Backend: b.Name, Profile: r.Profile, Load: true, Switch: o.worker()}
	if err := r.work(ctx, ns, load); err != nil {
		return err
	}
	if err := r.toolLoad(ctx, ns, o, b); err != nil {
		return err
	}
	steady := r.steady(b, round)
	steady.Switch = o.worker()
	return r.work(ctx, ns, steady)
}

// steady is the task after the first load: each kind of change so often that
// the cheapest come to the profile's samples over all rounds, and the idle
// time once, at the end.
func (r *run) steady(b worker.Backend, round int) worker.Task {
	share := func(of int) int { return max(1, (r.Profile.Samples+of*r.Rounds-1)/(of*r.Rounds)) }
	t := worker.Task{
		Backend: b.Name, Profile: r.Profile,
		Elements: share(1), Rules: share(2 * b.Sparing), Endpoints: share(4 * b.Sparing), Policies: share(10 * b.Sparing),
		Foreign: share(10), Rechecks: 3,
	}
	if round == r.Rounds-1 {
		t.Idle = r.Profile.Idle
	}
	return t
}
