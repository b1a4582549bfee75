package felixlike

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/felixlike/node"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// stages returns all stages in their order.
func (a *agent) stages(startup *handover.Startup, back *node.OVSRestart, conntrack *hostnet.Conntrack, br *node.Bridge, host *hostnet.Reconciler, hosts, senders, tunnelPort, firewalls, forwards, egress, egressAddresses, services, endServices, podSources backend.Stage) []backend.Stage {
	all := []backend.Stage{
		startup.Before(),
		// It needs no other stage, and waits for none.
		hosts,
		// No stage needs an object that a later stage makes: this stage makes the bridge.
		{Name: "ovsdb", Timeout: switchTimeout, Apply: backend.Writes(br.Apply), Invalidate: br.Invalidate},
		// Before a pod gets its flows, the old connections of its address are deleted.
		{Name: "conntrack", Required: true, Timeout: 30 * time.Second, Apply: backend.Writes(conntrack.Apply)},
		// Before the routes: answers to packets that leave by them are dropped until the senders are known.
		senders,
		// Before the flows by which a new peer is believed.
		tunnelPort, firewalls, forwards,
		a.encryption.Extend(hostStage(host)),
		// Before a pod has its flows: its first packet must leave with the address of its Egress.
		egress, egressAddresses,
		// Policy, which runs before, judges the packets that it translates.
		services,
		startup.Between(),
		back.Before(),
		a.migration.BeforeForwarding(),
		{Name: backend.ForwardingStage, Timeout: switchTimeout, Invalidate: br.RereadFlows, Watch: br.WatchFlows, Forwarding: a.migration.Forwarding(), Apply: func(ctx context.Context) (backend.Applied, error) {
			applied, err := a.migration.Apply(ctx, br.ApplyFlows)
			if err == nil {
				startup.Leads()
				back.Leads()
			}
			return applied, err
		}},
		br.RestoreStage(),
		endServices,
		podSources,
		startup.After(),
		back.After(),
	}
	// Policy in netfilter does not need the switch, and does not wait for it.
	at := slices.IndexFunc(all, func(s backend.Stage) bool { return s.Name == cmp.Or(a.backend.Stage().After, handover.StartupStage) })
	return slices.Insert(all, at+1, a.backend.Stage())
}

// hostStage programs the host's side of the gateway port.
func hostStage(host *hostnet.Reconciler) backend.Stage {
	return backend.Stage{
		Name: backend.HostStage, Timeout: switchTimeout, Invalidate: host.Invalidate, Watch: host.Watch, WatchIncomplete: true,
		Apply: func(ctx context.Context) (backend.Applied, error) {
			did, err := host.Apply(ctx)
			return backend.Applied{Writes: did.Writes, Repaired: did.Repaired}, err
		},
	}
}

// startupHandover returns the startup handover from the backend that was in force before.
func (a *agent) startupHandover(migration handover.Migration) *handover.Startup {
	return &handover.Startup{
		Place: a.backend.Place(), Migration: migration, Log: a.log.With("component", "driver", "backend", a.backend.Name()),
		Left:   a.left,
		Remove: func(ctx context.Context) error { return a.removeOthers(ctx, a.backend.Name()) },
	}
}

// handover returns what a change of the backend needs.
func (a *agent) handover(ctx context.Context, migration handover.Migration) handover.Config {
	return handover.Config{
		New: func(name string) (backend.Backend, error) {
			return newBackend(ctx, a.backendConfig.ForOther(name), a.cfg.Datastore, a.log)
		},
		Migration: migration, RemoveOthers: a.removeOthers,
	}
}

// removeOthers removes the objects of all backends but the named one.
func (a *agent) removeOthers(ctx context.Context, keep string) error {
	_, err := backend.Remove(ctx, a.backendConfig.ForOther(keep))
	return err
}

// bridgeOptions configures the stage of the bridge.
func (a *agent) bridgeOptions(fwd *forwarding, host *hostnet.Reconciler, back *node.OVSRestart) node.BridgeOptions {
	options := node.BridgeOptions{
		DB: a.bridgeConfig(), RunDir: a.cfg.OVSRunDir, Flows: fwd.flows, Owner: fwd.owner, Others: fwd.others, Network: a.network, SNAT: a.backendConfig.Switch.Node.SNAT,
		GatewayMTU: a.encryption.MTU(host.SetMTU), Connected: back.Found, Log: a.log,
	}
	if r, ok := a.source.(interface{ Reconnect() }); ok {
		options.Readdressed = r.Reconnect
	}
	return options
}

// bridgeConfig is the part of the bridge's configuration that needs no Node object.
func (a *agent) bridgeConfig() ovsdb.Config {
	snat, zones := a.backendConfig.Switch.Node.SNAT != nil, []uint16{pipeline.Zone, pipeline.MovedZone}
	if a.backendConfig.ServiceProxy {
		zones = append(zones, pipeline.ServiceZone)
	}
	if snat {
		zones = append(zones, pipeline.SNATZone)
	}
	return ovsdb.Config{
		Socket: a.socket, Bridge: a.cfg.Bridge, DatapathType: a.network.Datapath(), TunnelType: a.cfg.Tunnel,
		Gateway: model.GatewayPort, Tunnel: model.TunnelPort, GatewayMAC: ovsdb.GatewayMAC(a.cfg.NodeName),
		NodeName: a.cfg.NodeName, SNAT: snat, Zones: zones, Prefixes: pipeline.Prefixes(),
	}
}
