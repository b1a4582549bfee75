package felixlike

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/handover"
)

// choice is the backend that an agent begins with.
type choice struct {
	backend backend.Backend
	// becomes is the name of the configured backend if another one is in force, at the other enforcement point, and the agent begins with that; else empty.
	becomes string
	// left reports whether there are objects of backends at the other enforcement point.
	left func(ctx context.Context) (bool, error)
}

// chooser finds out which backend is in force. Tests replace its functions.
type chooser struct {
	make func(name string) (backend.Backend, error)
	// elsewhere returns the backends with another enforcement point than place that have objects here.
	elsewhere func(ctx context.Context, place backend.Place) ([]string, error)
	// leads returns the enforcement point that the bridge leads packets to.
	leads func(ctx context.Context) (backend.Place, error)
	log   *slog.Logger
}

// newChooser returns the chooser of an agent.
func newChooser(ctx context.Context, wanted backend.Config, datastore string, log *slog.Logger) chooser {
	return chooser{
		make: func(name string) (backend.Backend, error) {
			return newBackend(ctx, wanted.ForOther(name), datastore, log)
		},
		elsewhere: func(ctx context.Context, place backend.Place) ([]string, error) {
			return backend.LeftElsewhere(ctx, wanted, place)
		},
		leads: func(ctx context.Context) (backend.Place, error) { return backend.LeadsTo(ctx, wanted.Switch) },
		log:   log,
	}
}

// configured returns the choice of the configured backend. handover.Startup moves the connections of a backend at the other enforcement point to it, in one
// step.
func (c chooser) configured(name string) (choice, error) {
	b, err := c.make(name)
	if err != nil {
		return choice{}, err
	}
	if b.Why() != "" {
		c.log.Info("backend detected on this node", "backend", b.Name(), "why", b.Why())
	}
	return choice{backend: b, left: func(ctx context.Context) (bool, error) {
		names, err := c.elsewhere(ctx, b.Place())
		if len(names) > 0 {
			return true, nil
		}
		return false, err
	}}, nil
}

// afterFailure is configured where another backend was in force, which cannot be programmed.
func (c chooser) afterFailure(name string) (choice, error) {
	chosen, err := c.configured(name)
	chosen.left = func(context.Context) (bool, error) { return true, nil }
	return chosen, err
}

// choose returns the configured backend, or the one in force if that is at the other enforcement point. With the latter, the agent changes to the configured
// one once all is programmed, as "felixctl backend set" does: packets change their way in three steps. If it is not known which backend is in force, the agent
// begins with the configured one.
func (c chooser) choose(ctx context.Context, name string) (choice, error) {
	configured, err := c.configured(name)
	if err != nil {
		return choice{}, err
	}
	found, other, err := c.inForce(ctx, configured.backend.Place())
	switch {
	case err != nil:
		c.log.Warn("beginning with the configured backend, to which connections of another one move in one step", "backend", configured.backend.Name(), "why", err)
		return configured, nil
	case found == nil:
		if other { // else handover.Startup looks again: Open vSwitch may not have answered
			configured.left = func(context.Context) (bool, error) { return true, nil }
		}
		return configured, nil
	}
	c.log.Info("another backend is in force: beginning with it, and changing to the configured one once all is programmed", "backend", found.Name(), "configured", configured.backend.Name())
	if err := configured.backend.Close(); err != nil {
		c.log.Warn("the configured backend", "error", err)
	}
	return choice{backend: found, becomes: configured.backend.Name(), left: func(context.Context) (bool, error) { return other, nil }}, nil
}

// inForce returns the backend in force if it is at another enforcement point than place, else nil, and whether there are objects of backends at the
// enforcement point that does not decide. It fails if that is not clear.
func (c chooser) inForce(ctx context.Context, place backend.Place) (found backend.Backend, other bool, err error) {
	names, err := c.look(ctx, place)
	if err != nil || len(names) == 0 {
		return nil, len(names) > 0, err
	}
	limited, cancel := context.WithTimeout(ctx, handover.LookTimeout)
	defer cancel()
	decides, err := c.leads(limited)
	switch {
	case err != nil:
		return nil, true, err
	case decides == place:
		c.log.Info("connections of another backend, which is not in force, move in one step", "other", names)
		return nil, true, nil // an agent was killed while it changed the backend, or the switch has lost its flows
	case len(names) > 1:
		return nil, true, fmt.Errorf("one of %s was in force", strings.Join(names, ", "))
	}
	ours, err := c.look(ctx, decides)
	if err != nil {
		return nil, true, err
	}
	found, err = c.make(names[0])
	return found, len(ours) > 0, err
}

// look returns the backends with another enforcement point than place that have objects here, within handover.LookTimeout.
func (c chooser) look(ctx context.Context, place backend.Place) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, handover.LookTimeout)
	defer cancel()
	return c.elsewhere(ctx, place)
}

// newBackend returns the configured backend. It logs the effect of a missing serviceCIDRs if
// the datastore cannot supply the ranges.
func newBackend(ctx context.Context, c backend.Config, datastore string, log *slog.Logger) (backend.Backend, error) {
	variant := config.VariantDefault
	if c.Multitenant() {
		variant = config.VariantOpenShift
	}
	if err := errors.Join(config.CheckVariant(variant, c.Name), config.CheckPolicyOnly(c.TrafficMode.String(), c.Name), config.CheckSNAT(c.Switch.Node.SNAT != nil, c.Name)); err != nil {
		return nil, err
	}
	b, err := backend.New(ctx, c)
	if err == nil && b.Place() == backend.InSwitch && len(c.Switch.Node.ServiceCIDRs) == 0 && datastore == config.Manifests {
		log.Warn("without serviceCIDRs the address of a Service is judged as any other address: set it if pods use Services", "backend", b.Name())
	}
	return b, err
}
