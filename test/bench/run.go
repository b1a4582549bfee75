package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/livebench"
	"github.com/felixlike/felixlike/internal/measure"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/lab"
)

// Part is a part of a run.
type Part string

const (
	// Programming is the cost of programming policy into the kernel or the switch.
	Programming Part = "programming"
	// EnforcementPart is the time from an object to the packets.
	EnforcementPart Part = "enforcement"
	// PacketsPart is the traffic between pods.
	PacketsPart Part = "packets"
)

// Parts returns all parts, in the order in which they are run.
func Parts() []Part { return []Part{Programming, EnforcementPart, PacketsPart} }

// Config configures a run.
type Config struct {
	Profile workload.Profile
	// Parts are the parts to run, all of them if empty.
	Parts    []Part
	Backends []worker.Backend
	// Rounds is the number of turns of each backend.
	Rounds int
	// Datapath is that of the bridges that packets pass.
	Datapath string
	// Worker is the command of a process that calls worker.Run.
	Worker []string
	// Command is put into the report: it repeats the run.
	Command string
	// Progress receives the progress.
	Progress measure.Progress
}

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
		Version: livebench.ReportVersion, Command: cfg.Command, Started: time.Now().UTC().Truncate(time.Second),
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
	report.Budgets = evaluate(report)
	return nil
}

// inLab runs the parts that need pods.
func (r *run) inLab(ctx context.Context, report *Report) (err error) {
	n, err := startLabNode(ctx, r.Backends[0].Name, r.Datapath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if r.has(EnforcementPart) {
		if report.Enforcement, err = r.enforcement(ctx, n); err != nil {
			return err
		}
	}
	if r.has(PacketsPart) {
		report.Packets, err = r.packets(ctx, n)
	}
	return err
}

// has reports whether a part is run.
func (c *Config) has(p Part) bool { return slices.Contains(c.Parts, p) }

func (c *Config) backendNames() []string {
	var names []string
	for _, b := range c.Backends {
		names = append(names, b.Name)
	}
	return names
}

// check finds errors before the run.
func (c *Config) check() error {
	switch {
	case os.Geteuid() != 0:
		return errors.New("the benchmark makes network namespaces: it needs root")
	case c.Rounds < 1:
		return fmt.Errorf("%d rounds: must be at least 1", c.Rounds)
	case len(c.Backends) == 0:
		return errors.New("no backends")
	}
	for _, p := range c.Parts {
		if !slices.Contains(Parts(), p) {
			return fmt.Errorf("part %q: must be one of %v", p, Parts())
		}
	}
	for _, part := range []struct {
		Part
		check func() error
	}{{Programming, c.checkProgramming}, {EnforcementPart, c.checkEnforcement}, {PacketsPart, c.checkPackets}} {
		if c.has(part.Part) {
			if err := part.check(); err != nil {
				return err
			}
		}
	}
	if c.has(EnforcementPart) || c.has(PacketsPart) {
		return errors.Join(lab.Available(), labConfig(c.Backends[0].Name, c.Datapath).Check())
	}
	return nil
}

func (c *Config) checkProgramming() error {
	if c.Profile.Idle < 0 {
		return fmt.Errorf("idle for %s: must not be negative", c.Profile.Idle)
	}
	for _, b := range c.Backends {
		if err := checkSwitch(b); err != nil {
			return err
		}
		for _, t := range b.Tools {
			if _, err := exec.LookPath(t.Load[0]); err != nil {
				return fmt.Errorf("backend %s is measured beside %q: %w (make setup installs it)", b.Name, t, err)
			}
		}
	}
	return nil
}

func (c *Config) checkEnforcement() error {
	if c.Profile.Changes < 1 {
		return fmt.Errorf("%d changes in a turn: must be at least 1", c.Profile.Changes)
	}
	return workload.Point{Policies: c.Profile.Among, Peers: 1}.Check()
}

func (c *Config) checkPackets() error {
	if c.Profile.Traffic <= 0 {
		return fmt.Errorf("traffic for %s: must be more than nothing", c.Profile.Traffic)
	}
	if len(c.Profile.Points) == 0 {
		return errors.New("no numbers of policies to send packets through")
	}
	for _, at := range c.Profile.Points {
		if err := at.Check(); err != nil {
			return err
		}
	}
	return nil
}

// run is a run that is going on.
type run struct {
	Config
	calibration measure.Series
	turns       []turn
	engineTurns []engineTurn
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

// takeTurn does something between two calibrations.
func (r *run) takeTurn(round int, name string, do func() error) error {
	r.Progress.Turn(round+1, r.Rounds, name)
	err := do()
	r.Progress.Done()
	if err != nil {
		return fmt.Errorf("round %d, %s: %w", round+1, name, err)
	}
	r.calibration = append(r.calibration, calibrate())
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

func (r *run) add(backend, tool string, m worker.Measurement) {
	r.turns = append(r.turns, turn{
		resultKey: resultKey{backend, m.Case}, Measurement: m, tool: tool, slot: r.slot(),
	})
}

// slot numbers the turns: it is that of the calibration before.
func (r *run) slot() int { return len(r.calibration) - 1 }
