package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/measure"
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
	// TrafficModes are the modes in which packets pass between two nodes, in turn. If there are none, packets pass between
	// pods of one node.
	TrafficModes []string
	// Worker is the command of a process that calls worker.Run.
	Worker []string
	// Command is put into the report: it repeats the run.
	Command string
	// Progress receives the progress.
	Progress measure.Progress
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
	for _, mode := range c.TrafficModes {
		if modes := []string{config.Encap, config.NoEncap, config.Hybrid}; !slices.Contains(modes, mode) {
			return fmt.Errorf("traffic mode %q: must be one of %v", mode, modes)
		}
	}
	for _, at := range c.Profile.Points {
		if err := at.Check(); err != nil {
			return err
		}
	}
	return nil
}
