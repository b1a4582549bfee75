package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

// Versions are the costs of two versions, measured in turns on one machine.
type Versions struct {
	Machine measure.Machine `json:"machine"`
	// Limit is the highest ratio that is no failure.
	Limit float64 `json:"limit"`
	Costs []Cost  `json:"costs"`
}

// Cost is the CPU time of one operation of both versions, with one value a turn. It needs no correction for the machine:
// the two turns of a pair follow each other. The calibration loop could not give one, since it keeps only one processor busy.
type Cost struct {
	Backend string         `json:"backend"`
	What    string         `json:"what"`
	Was     measure.Series `json:"wasCPUSeconds"`
	Is      measure.Series `json:"isCPUSeconds"`
}

// Ratio returns what the new version takes, as multiples of what the old one takes.
func (c *Cost) Ratio() measure.Series { return c.Is.Over(c.Was) }

// Lowest returns the ratio of the lowest values. Other programs only add CPU time, so it has less noise.
func (c *Cost) Lowest() float64 { return c.Is.Min() / c.Was.Min() }

// Dearer returns the costs that are above the limit by both the median of the ratios and the ratio of the lowest values.
func (v *Versions) Dearer() []Cost {
	return slices.DeleteFunc(slices.Clone(v.Costs), func(c Cost) bool { return min(c.Ratio().Median(), c.Lowest()) <= v.Limit })
}

// CompareVersions measures the cost of the programming part, with the worker of the configuration and with an older one.
func CompareVersions(ctx context.Context, cfg Config, old []string, limit float64) (*Versions, error) {
	cfg.Parts, cfg.Profile.Idle = []Part{Programming}, 0
	if err := cfg.check(); err != nil {
		return nil, err
	}
	v := &Versions{Machine: measure.ThisMachine(ctx, versions(cfg.Backends)...), Limit: limit}
	for round := range cfg.Rounds {
		for _, b := range cfg.Backends {
			cfg.Progress.Turn(round+1, cfg.Rounds, b.Name)
			err := v.round(ctx, cfg, b, old)
			cfg.Progress.Done()
			if err != nil {
				return nil, fmt.Errorf("round %d, %s: %w", round+1, b.Name, err)
			}
		}
	}
	v.Machine.LoadAfter = measure.LoadAverage()
	return v, nil
}

// round measures a backend: each task is done by both versions, one after the other, each in a namespace that is its own.
func (v *Versions) round(ctx context.Context, cfg Config, b worker.Backend, old []string) (err error) {
	var places [2]*place
	for i, program := range [][]string{old, cfg.Worker} {
		if places[i], err = newPlace(ctx, cfg, b, program); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, places[i].close()) }()
	}
	for i, t := range versionTasks(cfg.Profile, b) {
		first := i % 2
		var costs [2]map[string]float64
		for _, k := range []int{first, 1 - first} {
			if costs[k], err = places[k].costs(ctx, t); err != nil {
				return err
			}
		}
		v.add(b.Name, costs[0], costs[1])
	}
	return nil
}

// versionTasks are those of a round: a first load, restarts, and changes.
func versionTasks(p workload.Profile, b worker.Backend) []worker.Task {
	load, restart, changes := worker.Task{Backend: b.Name, Profile: p, Load: true}, worker.Task{Backend: b.Name, Profile: p}, worker.Task{Backend: b.Name, Profile: p}
	n := max(1, p.Samples/(20*b.Sparing))
	changes.Rules, changes.Elements, changes.Endpoints, changes.Rechecks = n, 2*n, n, 3
	return []worker.Task{load, restart, restart, changes}
}

// place is where one version works.
type place struct {
	run
	ns *namespace.Namespace
	o  *ovs
}

func newPlace(ctx context.Context, cfg Config, b worker.Backend, program []string) (*place, error) {
	cfg.Worker = program
	p := &place{run: run{Config: cfg}}
	var err error
	if p.ns, err = namespace.Anonymous(); err != nil {
		return nil, err
	}
	if p.o, err = startSwitch(ctx, p.ns, b); err != nil {
		p.ns.Close()
		return nil, err
	}
	return p, nil
}

func (p *place) close() error {
	err := p.o.stop()
	p.ns.Close()
	return err
}

// costs does a task, and returns its costs.
func (p *place) costs(ctx context.Context, t worker.Task) (map[string]float64, error) {
	t.Switch, p.turns = p.o.worker(), nil
	if err := p.work(ctx, p.ns, t); err != nil {
		return nil, err
	}
	return perOperation(p.turns), nil
}

// perOperation returns the CPU time of an operation by case. The time until the model is complete is a case of its own.
func perOperation(turns []turn) map[string]float64 {
	costs := map[string]float64{}
	for _, t := range turns {
		costs[string(t.c)] = t.CPU.Total().Seconds() / float64(len(t.Wall))
		if model := t.Model.CPU.Total(); model > 0 {
			costs[string(t.c)+", model"] = model.Seconds()
		}
	}
	return costs
}

// add adds the costs of a task. A case that only one version has is left out.
func (v *Versions) add(backend string, was, is map[string]float64) {
	for _, what := range slices.Sorted(maps.Keys(is)) {
		if _, both := was[what]; !both {
			continue
		}
		i := slices.IndexFunc(v.Costs, func(c Cost) bool { return c.Backend == backend && c.What == what })
		if i < 0 {
			i = len(v.Costs)
			v.Costs = append(v.Costs, Cost{Backend: backend, What: what})
		}
		v.Costs[i].Was, v.Costs[i].Is = append(v.Costs[i].Was, was[what]), append(v.Costs[i].Is, is[what])
	}
}

// Table returns the costs as rows of text below headings.
func (v *Versions) Table() (headings []string, rows [][]string) {
	for _, c := range v.Costs {
		r := c.Ratio()
		rows = append(rows, []string{
			c.Backend, c.What, measure.Duration(c.Was.Median()), measure.Duration(c.Is.Median()),
			fmt.Sprintf("%.2f", r.Median()), fmt.Sprintf("%.2f", c.Lowest()), fmt.Sprintf("%.2f to %.2f", r.Min(), r.Max()),
		})
	}
	return []string{"backend", "CPU of", "old", "new", "ratio", "of the lowest", "rounds"}, rows
}
