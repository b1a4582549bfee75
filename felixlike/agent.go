package felixlike

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/tables/iptables"
)

// Names that are the same on every node.
const (
	// ControlSocket is the name of the control socket in the run directory.
	ControlSocket = "control.sock"
	// GatewayPort and TunnelPort are the bridge's ports to the host and to
	// the peers.
	GatewayPort = "flx-gw0"
	TunnelPort  = "flx-tun0"
)

// switchTimeout bounds a stage that talks to Open vSwitch. A bundle of 20,000
// flows takes a second on a busy machine.
const switchTimeout = 5 * time.Second

// RunAgent runs an agent until ctx ends. What it programmed stays in force.
func RunAgent(ctx context.Context, cfg *config.Effective, log *slog.Logger) error {
	log = log.With("node", cfg.NodeName)
	log.Info("starting", "version", version.String(), "backend", cfg.Backend, "datastore", cfg.Datastore, "datapath", cfg.Datapath, "tunnel", cfg.Tunnel)
	socket := filepath.Join(cfg.OVSRunDir, "db.sock")
	attachments, err := ovsdb.Open(ctx, ovsdb.Config{Socket: socket, Bridge: cfg.Bridge})
	if err != nil {
		return fmt.Errorf("open vswitch database: %w", err)
	}
	defer attachments.Close()
	choose := chooser(ctx, cfg)
	backend, err := choose(cfg.Backend)
	if err != nil {
		return fmt.Errorf("backend %s: %w", cfg.Backend, err)
	}
	if backend.Why != "" {
		log.Info("backend chosen by what is on this node", "backend", backend.Name, "why", backend.Why)
	}
	server := health.New(cfg.HealthAddress, log.With("component", "health"))
	d, bridge := newAgent(cfg, backend, choose, socket, attachments, server, log)
	defer bridge.close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.Run(ctx) })
	g.Go(func() error {
		return control.Serve(ctx, filepath.Join(cfg.RunDir, ControlSocket), d, log.With("component", "control"))
	})
	if cfg.HealthAddress != "" {
		g.Go(func() error { return server.Run(ctx, d, d.Metrics()) })
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("stopped; policy and forwarding stay in force")
	return nil
}

// chooser returns what makes the backend of a name for this node.
func chooser(ctx context.Context, cfg *config.Effective) func(name string) (Backend, error) {
	return func(name string) (Backend, error) {
		variant, err := iptables.ParseVariant(cfg.IPTablesVariant)
		if err != nil {
			return Backend{}, err
		}
		return NewBackend(ctx, Choice{Name: name, Variant: variant, Node: cfg.NodeName, Masquerade: cfg.Masquerade})
	}
}

// newAgent chooses and wires datastore, managers and stages.
func newAgent(cfg *config.Effective, backend Backend, choose func(string) (Backend, error), socket string, attachments *ovsdb.Client, server *health.Server, log *slog.Logger) (*Driver, *bridge) {
	flows := openflow.NewFlowTable(pipeline.Version)
	br := newBridge(bridgeConfig(cfg, socket), cfg.OVSRunDir, flows, log)
	host := hostnet.NewReconciler()
	conntrack := hostnet.NewConntrack()
	ports := pipeline.Node{
		GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: ovsdb.GatewayMAC(cfg.NodeName),
	}
	timing := DefaultTiming()
	timing.Resync = time.Duration(cfg.ResyncInterval)
	return New(Config{
		Node: cfg.NodeName, Backend: backend, NewBackend: choose, Datastore: cfg.Datastore,
		Source: manifests.New(manifests.Options{Dir: cfg.Manifests, Log: log.With("component", "manifests")}),
		Attachments: func(ctx context.Context, update func(model.Update), synced func()) error {
			return attachments.WatchAttachments(ctx, update, synced, func(err error) {
				log.Warn("attachment ignored", "component", "ovsdb", "error", err)
			})
		},
		HealthAddress: server.Status,
		Managers: []managers.Manager{
			br,
			managers.NewRouteManager(cfg.NodeName, hostnet.State{
				Gateway: GatewayPort, MTU: cfg.MTU, VirtualMAC: pipeline.VirtualMAC(),
				RouteTable: hostnet.DefaultRouteTable, RulePriority: hostnet.DefaultRulePriority,
			}, host),
			managers.NewConntrackManager(conntrack),
			managers.NewForwardingManager(cfg.NodeName, ports, flows),
			managers.NewTunnelManager(cfg.NodeName, ports, flows),
		},
		Stages: []Stage{
			// Policy first: it needs nothing of the switch, and does not wait for it.
			backend.Stage,
			leftovers(backend.Name),
			// Before a pod gets its flows, what its address did before is forgotten.
			{Name: "conntrack", Required: true, Timeout: 30 * time.Second, Apply: writes(conntrack.Apply)},
			{Name: "ovsdb", Timeout: switchTimeout, Apply: writes(br.apply), Invalidate: br.invalidate},
			{Name: "netlink", Timeout: switchTimeout, Apply: writes(host.Apply), Invalidate: host.Invalidate},
			{Name: "openflow", Timeout: switchTimeout, Apply: writes(func(ctx context.Context) (int, error) {
				if err := br.connect(ctx); err != nil {
					return 0, err
				}
				r, err := flows.Apply(ctx)
				return r.Messages, err
			}), Invalidate: br.reread},
		},
		Lost: br.lost, Log: log, Timing: timing,
	}), br
}

func bridgeConfig(cfg *config.Effective, socket string) ovsdb.Config {
	c := ovsdb.Config{
		Socket: socket, Bridge: cfg.Bridge, DatapathType: cfg.Datapath, TunnelType: cfg.Tunnel,
		Gateway: GatewayPort, Tunnel: TunnelPort, GatewayMAC: ovsdb.GatewayMAC(cfg.NodeName),
		MTU: cfg.MTU, NodeName: cfg.NodeName,
	}
	if cfg.Datapath == ovsdb.DatapathNetdev {
		c.Uplink = cfg.Uplink
	}
	return c
}

// writes makes an Apply of a receiver that only counts its writes into one of
// a stage.
func writes(apply func(context.Context) (int, error)) func(context.Context) (Applied, error) {
	return func(ctx context.Context) (Applied, error) {
		n, err := apply(ctx)
		return Applied{Writes: n}, err
	}
}
