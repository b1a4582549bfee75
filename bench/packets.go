package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/model"
)

// PacketsConfig is what a run over packets is made of: two pods of one node,
// and a backend that is changed under them.
type PacketsConfig struct {
	Backends []string
	Rounds   int
	// Duration is how long each kind of traffic is measured in a turn.
	Duration time.Duration
	// Policies is how many apply to the server, of ten rules each; the last rule
	// of the last of them, by name, allows what is measured.
	Policies int
	Datapath string
	Command  string
	Progress Progress
}

// RunPackets measures what packets of pods find under each backend, in a lab of
// its own that ends with it. The backend is changed on the live node, so that
// pods, bridge and machine are the same for all.
func RunPackets(ctx context.Context, cfg PacketsConfig) (_ *PacketsReport, err error) {
	switch {
	case cfg.Rounds < 1:
		return nil, fmt.Errorf("%d rounds: must be at least 1", cfg.Rounds)
	case cfg.Duration <= 0:
		return nil, fmt.Errorf("for %s: must be more than nothing", cfg.Duration)
	case cfg.Policies < 1:
		return nil, fmt.Errorf("%d policies: must be at least 1", cfg.Policies)
	case len(cfg.Backends) == 0:
		return nil, errors.New("no backends")
	}
	l, err := lab.Up(ctx, lab.Config{
		Name: fmt.Sprintf("bench-%d", os.Getpid()), Backend: cfg.Backends[0], Datapath: cfg.Datapath,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	if err := l.SetState(ctx, packetsState(cfg.Policies)); err != nil {
		return nil, err
	}
	r := &PacketsReport{
		Version: ReportVersion, Command: cfg.Command, Started: time.Now().UTC().Truncate(time.Second),
		Rounds: cfg.Rounds, Duration: cfg.Duration.Seconds(), Policies: cfg.Policies, Datapath: cfg.Datapath,
		Backends: cfg.Backends, Machine: thisMachine(ctx, nil),
	}
	p := &packets{PacketsConfig: cfg, lab: l, results: newPacketsResults(cfg.Backends)}
	for round := range cfg.Rounds {
		for _, b := range cfg.Backends {
			cfg.Progress.Turn(round+1, cfg.Rounds, b)
			err := p.turn(ctx, b)
			cfg.Progress.Done()
			if err != nil {
				return nil, fmt.Errorf("round %d, %s: %w", round+1, b, err)
			}
		}
	}
	r.Results = p.results.collect()
	r.Took = time.Since(r.Started).Seconds()
	r.Machine.LoadAfter = loadAverage()
	return r, nil
}

// packets is a run that is going on.
type packets struct {
	PacketsConfig
	lab     *lab.Lab
	results packetsResults
}

// turn moves the node to a backend, and measures each kind of traffic.
func (p *packets) turn(ctx context.Context, backend string) error {
	node := p.lab.Node(packetsNode)
	if err := control.NewClient(node.ControlSocket()).SetBackend(ctx, backend); err != nil {
		return err
	}
	w, err := newWire(p.lab.Pod(packetsClient()), p.lab.Pod(packetsServer()))
	if err != nil {
		return err
	}
	defer w.close()
	_, vswitchd := node.OVS().PIDs()
	for _, kind := range trafficKinds() {
		p.Progress.Case(string(kind))
		before, err := processCPU(vswitchd)
		if err != nil {
			return err
		}
		sample, err := w.measure(ctx, kind, p.Duration)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		after, err := processCPU(vswitchd)
		if err != nil {
			return err
		}
		sample.switchCPU = (after - before).Seconds()
		if err := p.results.add(backend, kind, sample); err != nil {
			return err
		}
	}
	return nil
}

// The pods of a run.
const packetsNode = "node1"

func packetsClient() model.PodID { return model.PodID{Namespace: "bench", Name: "client"} }
func packetsServer() model.PodID { return model.PodID{Namespace: "bench", Name: "server"} }
