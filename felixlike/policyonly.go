package felixlike

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/felixlike/node"
	"github.com/felixlike/felixlike/felixlike/revalidate"
	"github.com/felixlike/felixlike/felixlike/staged"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// runPolicyOnly runs an agent with trafficMode networkPolicyOnly until ctx ends: another CNI plugin owns the pods'
// interfaces, addresses and routes, and policy is all that the agent programs. There is no Open vSwitch.
func runPolicyOnly(ctx context.Context, cfg *config.Effective, log *slog.Logger) error {
	wanted, err := backend.ConfigOf(cfg, "")
	if err != nil {
		return err
	}
	source, err := newSource(cfg, log)
	if err != nil {
		return err
	}
	chosen, err := newBackend(ctx, wanted, cfg.Datastore, log)
	if err != nil {
		return fmt.Errorf("backend %s: %w", cfg.Backend, err)
	}
	if chosen.Why() != "" {
		log.Info("backend detected on this node", "backend", chosen.Name(), "why", chosen.Why())
	}
	a := &agent{cfg: cfg, backendConfig: wanted, choice: choice{backend: chosen}, source: source, server: health.New(cfg.HealthAddress, log.With("component", "health")), log: log}
	if a.chained, err = cni.NewChained(a.cniSocket(), log.With("component", "cni")); err != nil {
		return err
	}
	if err := a.chained.Adopt(""); err != nil {
		return err
	}
	a.configs = node.WatchConfigs(cfg, true, log)
	a.lost = node.NewLostPorts(a.chained.Attachments, log.With("component", "cni"))
	driver := a.policyOnlyDriver(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.chained.Tend(ctx, "") })
	g.Go(func() error { return a.run(ctx, driver) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("stopped; policy stays in force")
	return nil
}

// policyOnlyDriver wires datastore, managers and stages of an agent that programs policy alone.
func (a *agent) policyOnlyDriver(ctx context.Context) *api {
	cfg, log := a.cfg, a.log
	conntrack, egresses := hostnet.NewConntrack(), &ignoredEgresses{}
	timing := driver.DefaultTiming()
	timing.Resync = time.Duration(cfg.ResyncInterval)
	api := newAPI(os.Stdout)
	hosts := a.hosts(api.view)
	api.Counters.Hosts = hosts.Table.Hits
	watches := driver.Module{
		Notices:  (&node.Outages{Node: cfg.NodeName, Configs: a.configs}).Now,
		Problems: func() []model.Problem { return slices.Concat(a.chained.Problems(), egresses.problems()) },
		Status: func(s *control.Status) {
			s.Datastore, s.Health, s.Underlay = cfg.Datastore, a.server.Status(), &control.Underlay{TrafficMode: model.PolicyOnly}
		},
		Served: func(m *control.Model) {
			m.Settings = control.Settings{TrafficMode: model.PolicyOnly, NFTablesLayout: a.backendConfig.Layout}
		},
	}
	addresses := driver.Source(api.view, addressesNeeded, func(ctx context.Context, update func(model.HostAddressesUpdate)) error {
		return hostnet.WatchAddresses(ctx, nil, func(all []netip.Addr, _ []netip.Prefix) { update(model.HostAddressesUpdate{Addresses: all}) }, func(err error) {
			log.Warn("this node's addresses may be out of date", "component", "netlink", "error", err)
		})
	})
	api.Driver = driver.New(driver.Config{
		Cluster: cluster.Config{Node: cfg.NodeName},
		Inputs:  driver.Inputs{Source: a.source, Attachments: a.chained.Watch},
		Backend: a.backend, Handover: a.handover(ctx, stays{}),
		Managers: []managers.Manager{managers.NewConntrackManager(conntrack), egresses},
		Stages: []backend.Stage{
			hosts.Table.Stage(),
			// Before a pod gets its policy, the old connections of its address are deleted.
			{Name: "conntrack", Required: true, Timeout: 30 * time.Second, Apply: backend.Writes(conntrack.Apply)},
			backend.PodSources(a.backendConfig, a.chained.Bridged),
			a.backend.Stage(), backend.Services(a.backendConfig),
			{Name: handover.LeftoversStage, BestEffort: true, StartupOnly: true, Timeout: 2 * handover.MigrationTimeout, Apply: backend.Writes(func(ctx context.Context) (int, error) {
				return 0, a.removeOthers(ctx, a.backend.Name())
			})},
		},
		View: api.view, Modules: append(api.modules(), addresses, a.lost.Module(api.view), hosts.Module(), a.verify(api.view), revalidate.NewConnections(api.view, nil, nil, timing).Module(), staged.New(api.view, nil, nil, 0).Module(), watches),
		Log: log, Timing: timing,
	})
	return api
}

// ignoredEgresses are the Egresses, which have no effect: another CNI plugin chooses the sources of packets to the outside.
type ignoredEgresses struct {
	all atomic.Pointer[[]model.EgressAddress]
}

// OnUpdate implements managers.Manager.
func (i *ignoredEgresses) OnUpdate(u model.Update) {
	if u, ok := u.(model.EgressesUpdate); ok {
		i.all.Store(&u.Egresses)
	}
}

// CompleteDeferredWork implements managers.Manager.
func (i *ignoredEgresses) CompleteDeferredWork() {}

func (i *ignoredEgresses) problems() []model.Problem {
	all := i.all.Load()
	if all == nil {
		return nil
	}
	var found []model.Problem
	for _, e := range *all {
		found = append(found, model.Problem{Object: e.Object, Reason: "it has no effect with trafficMode networkPolicyOnly: another CNI plugin chooses the sources of packets to the outside"})
	}
	return found
}

// stays is the Migration of a node with one enforcement point: it does nothing.
type stays struct{}

// Carry implements Migration.
func (stays) Carry(context.Context, backend.Place) error { return nil }

// Steer implements Migration.
func (stays) Steer(pipeline.Mode) {}

// Settle implements Migration.
func (stays) Settle(context.Context) error { return nil }
