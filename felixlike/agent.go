package felixlike

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/cni/confdir"
	"github.com/felixlike/felixlike/felixlike/audit"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/egress"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/felixlike/hosts"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/node"
	"github.com/felixlike/felixlike/felixlike/revalidate"
	"github.com/felixlike/felixlike/felixlike/serviceproxy"
	"github.com/felixlike/felixlike/felixlike/staged"
	"github.com/felixlike/felixlike/felixlike/tenants"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/carry"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/rules"
)

// addressesNeeded is missing until this node's own addresses are known.
const addressesNeeded = "the addresses of this node are not known"

// switchTimeout bounds a stage that talks to Open vSwitch. A bundle of 20,000
// flows takes a second on a busy machine.
const switchTimeout = 5 * time.Second

// RunAgent runs an agent until ctx ends. The programmed state stays in force.
func RunAgent(ctx context.Context, cfg *config.Effective, log *slog.Logger) error {
	SetGC()
	log = log.With("node", cfg.NodeName)
	log.Info("starting", "version", version.String(), "backend", cfg.Backend, "datastore", cfg.Datastore, "datapath", cfg.Datapath, "tunnel", cfg.Tunnel)
	if err := checkVerify(cfg); err != nil {
		return err
	}
	release, err := beAlone(ctx, log)
	if err != nil {
		return err
	}
	defer release()
	if cfg.TrafficMode == config.PolicyOnly {
		return runPolicyOnly(ctx, cfg, log)
	}
	err = runAgent(ctx, cfg, log, func(c chooser, name string) (choice, error) { return c.choose(ctx, name) })
	if errors.Is(err, driver.ErrFoundFails) {
		log.Error("beginning again with the configured backend", "backend", cfg.Backend, "why", err)
		err = runAgent(ctx, cfg, log, chooser.afterFailure)
	}
	return err
}

// runAgent is RunAgent with a choice of the backend, once no other agent runs.
func runAgent(ctx context.Context, cfg *config.Effective, log *slog.Logger, choose func(c chooser, name string) (choice, error)) error {
	socket := filepath.Join(cfg.OVSRunDir, "db.sock")
	attachments, err := node.OpenDatabase(ctx, ovsdb.Config{Socket: socket, Bridge: cfg.Bridge}, log)
	if err != nil {
		return err
	}
	defer attachments.Close()
	network, err := node.NewNetwork(ctx, cfg, attachments, log)
	if err != nil {
		return err
	}
	wanted, err := backend.ConfigOf(cfg, network.Datapath())
	if err != nil {
		return err
	}
	bypassed := backend.NewBypassed(wanted.NetNS)
	defer bypassed.Close()
	offloading := node.NewOffload(cfg.Offload, network.Datapath(), bypassed.Find, log.With("component", "offload"))
	offloading.Begin(ctx)
	wanted.Switch.Node.Offload = offloading.Active()
	source, err := newSource(cfg, log)
	if err != nil {
		return err
	}
	encryption, err := node.NewEncryption(cfg)
	if err != nil {
		return err
	}
	if encryption != nil {
		network.Encrypts(encryption.PublicKey(), wanted.TunnelPort)
	}
	if wanted.Multitenant() {
		choose = chooser.configured // the bridge has another pipeline
	}
	chosen, err := choose(newChooser(ctx, wanted, cfg.Datastore, log), wanted.Name)
	if err != nil {
		return fmt.Errorf("backend %s: %w", cfg.Backend, err)
	}
	server := health.New(cfg.HealthAddress, log.With("component", "health"))
	a := &agent{cfg: cfg, backendConfig: wanted, choice: chosen, source: source, socket: socket, attachments: attachments, network: network, encryption: encryption, server: server, offloading: offloading, log: log}
	a.configs, a.daemon = node.WatchConfigs(cfg, false, log), vswitchd.NewWatcher(cfg.OVSRunDir)
	a.lost = node.NewLostPorts(attachments.Attachments, log.With("component", "ovsdb"))
	d, bridge := a.driver(ctx)
	defer bridge.Close()
	err = a.run(ctx, d)
	if errors.Is(err, driver.ErrFoundFails) {
		return errors.Join(err, chosen.backend.Close())
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("stopped; policy and forwarding stay in force")
	return nil
}

// run runs the driver and all that serves it, until ctx ends or one of them fails.
func (a *agent) run(ctx context.Context, d *api) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.Run(ctx) })
	if t, ok := a.source.(driver.Recorder); ok {
		g.Go(func() error { return t.RecordEvents(ctx, d.Notices) })
	}
	if to, ok := a.source.(node.Publisher); ok && a.encryption != nil {
		g.Go(func() error { return a.encryption.Publish(ctx, to, a.log.With("component", "wireguard")) })
	}
	g.Go(func() error { return writePolicyStatus(ctx, a.source, a.cfg, a.log) })
	g.Go(func() error { return changeNetNamespaces(ctx, a.source, a.cfg, a.log) })
	g.Go(func() error {
		return control.Serve(ctx, filepath.Join(a.cfg.RunDir, control.SocketName), d, a.log.With("component", "control"))
	})
	if a.daemon != nil {
		g.Go(func() error { return a.daemon.Run(ctx) })
	}
	if a.tunnels != nil {
		g.Go(func() error { return a.tunnels.Run(ctx) })
	}
	if a.strangers != nil {
		g.Go(func() error { return a.strangers.Run(ctx) })
	}
	if a.configs != nil {
		g.Go(func() error { return a.configs.Run(ctx) })
	}
	if a.cfg.CNIPluginDir != "" {
		g.Go(func() error { return a.serveCNI(ctx, d) })
	}
	if a.cfg.HealthAddress != "" {
		g.Go(func() error { return a.server.Run(ctx, d, d.Metrics()) })
	}
	return g.Wait()
}

// serveCNI serves this node's CNI plugin until ctx ends.
func (a *agent) serveCNI(ctx context.Context, d *api) error {
	options := cni.ServerOptions{Socket: a.cniSocket(), Agent: d, Waited: d.Added, Log: a.log.With("component", "cni")}
	if a.chained != nil {
		return cni.NewChainedServer(options, a.chained).Run(ctx)
	}
	options.Bridge, options.OVSDB, options.MTU, options.PluginDir = a.cfg.Bridge, a.socket, a.network.MTU, a.cfg.CNIPluginDir
	return cni.NewServer(options).Run(ctx)
}

func (a *agent) cniSocket() string { return filepath.Join(a.cfg.RunDir, cni.SocketName) }

// newSource returns the configured datastore.
func newSource(cfg *config.Effective, log *slog.Logger) (datastore.Source, error) {
	log = log.With("component", cfg.Datastore)
	if cfg.Datastore == config.Manifests {
		return manifests.New(manifests.Options{Dir: cfg.Manifests, State: cfg.StateDir, Services: cfg.ServiceProxy == config.ServiceProxyFull, Log: log}), nil
	}
	api, err := kubernetes.LoadConfig(cfg.Kubeconfig, cfg.APIServer)
	if err != nil {
		return nil, err
	}
	api.UserAgent = "felixlike-agent/" + version.String()
	return kubernetes.New(kubernetes.Options{
		Config: api, Node: cfg.NodeName, Servers: cfg.APIServer, Services: cfg.ServiceProxy == config.ServiceProxyFull,
		NetNamespaces: cfg.Isolation == config.IsolationNamespaces, Log: log,
	})
}

// agent has the parts of an agent while RunAgent builds it.
type agent struct {
	cfg           *config.Effective
	backendConfig backend.Config
	choice
	source      datastore.Source
	socket      string
	attachments *ovsdb.Client
	network     *node.Network
	// chained are the pods whose interfaces another CNI plugin has made; nil in other modes than networkPolicyOnly, which has no
	// switch, attachments, network and daemon.
	chained *cni.Chained
	// addresses are those of Egresses on this node; nil in networkPolicyOnly.
	addresses *hostnet.Addresses
	// encryption is nil without the setting.
	encryption *node.Encryption
	server     *health.Server
	// configs watches the runtime's network configurations; it may be nil.
	configs *confdir.Watcher
	// daemon watches whether ovs-vswitchd answers.
	daemon *vswitchd.Watcher
	// tunnels asks ovs-vswitchd where it sends tunnel packets; nil unless it routes them itself.
	tunnels *vswitchd.TunnelRoutes
	// strangers is nil without a bridge.
	strangers *node.Strangers
	// lost watches for pods that lose their interface.
	lost *node.LostPorts
	// migration leads packets through the enforcement point.
	migration *node.Migration
	// offloading decides whether packets of established connections skip the host.
	offloading *node.Offload
	log        *slog.Logger
}

// driver chooses and wires datastore, managers and stages.
func (a *agent) driver(ctx context.Context) (*api, *node.Bridge) {
	cfg, log, ports := a.cfg, a.log, a.backendConfig.Switch.Node
	fwd := a.forwarding()
	carrier := carry.New(carry.Options{
		Node: cfg.NodeName, TrafficMode: a.backendConfig.TrafficMode, RunDir: cfg.OVSRunDir, Socket: a.backendConfig.Switch.ManagementSocket(), DatapathType: a.backendConfig.Switch.DatapathType(),
	})
	conntrack := hostnet.NewConntrack(carrier)
	migration := node.NewMigration(a.backendConfig.Switch, carrier, fwd, fwd.tunnel, log.With("component", "driver"))
	if a.migration = migration; fwd.multitenant != nil {
		migration.Untracked()
	}
	migration.Steer(a.backend.Place().Mode())
	back, host := node.NewOVSRestart(migration, log.With("component", "driver")), hostnet.NewReconciler()
	br := node.NewBridge(a.bridgeOptions(fwd, host, back))
	hops := hostnet.NewHops(model.GatewayPort)
	if ports.SNAT != nil {
		// An agent that starts again must not remove the flows that need the next hop. Failures are reported by watchHops.
		hops.SetPeers([]netip.Addr{model.Outside()})
		if known, err := hops.Now(ctx); err == nil {
			fwd.OnUpdate(model.HopsUpdate{Hops: known})
		}
	}
	api := newAPI(os.Stdout)
	senders, distrusted := backend.Senders(a.backendConfig, hops)
	tunnelPort := backend.TunnelPort(a.backendConfig)
	firewalls, dropping := backend.Firewalls(a.backendConfig, tunnelPort.Ends)
	forwards, blocking := backend.Forwards(a.backendConfig, cfg.ForwardAccept)
	a.addresses = &hostnet.Addresses{}
	egress, egressAddresses := backend.Egress(a.backendConfig, a.addresses)
	dropped := node.NewDroppedPackets(tunnelPort.Dropped)
	readDropped := func(ctx context.Context) (map[string]uint64, error) {
		return dropped.Read(ctx, a.backendConfig.Switch.ManagementSocket())
	}
	hosts := a.hosts(api.view)
	api.Counters.Hosts = hosts.Table.Hits
	a.strangers = node.NewStrangers(cfg.NodeName, readDropped)
	daemon := vswitchd.New(cfg.OVSRunDir, a.backendConfig.Switch.DatapathType())
	timing := driver.DefaultTiming()
	timing.Resync = time.Duration(cfg.ResyncInterval)
	routes := a.routes(host)
	translations := managers.NewTranslationManager(cfg.NodeName, cfg.Masquerade, ports.SNAT != nil, ports.ServiceCIDRs)
	all := a.encryption.With(br, carrier, routes, managers.NewConntrackManager(conntrack), fwd, fwd.tunnel, translations)
	if a.watchTunnels(); a.tunnels != nil {
		all = append(all, a.tunnels)
	}
	var begun staged.Connections
	if fwd.multitenant == nil {
		begun = carrier
		api.connections = func(ctx context.Context, place backend.Place) ([]control.Connection, error) {
			return node.Connections(ctx, carrier, place, ports.ServiceCIDRs)
		}
	}
	existing := revalidate.NewConnections(api.view, a.established(carrier), ports.ServiceCIDRs, timing)
	sources := struct {
		*managers.TranslationManager
		*carry.Carrier
	}{translations, carrier}
	outages := &node.Outages{Node: cfg.NodeName, Host: host, Daemon: a.daemon, Configs: a.configs, Tunnels: a.tunnels, Forward: blocking}
	watches := driver.Module{
		Run:     func(ctx context.Context) error { return a.watchSwitch(ctx, api.view, br) },
		Notices: outages.Now,
		Problems: func() []model.Problem {
			return slices.Concat(br.Problems(), routes.Problems(), fwd.Problems(), a.encryption.Problems(), distrusted(), tunnelPort.Problems(), dropping(), a.tunnelProblems(), a.strangers.Problems(time.Now()))
		},
		Status: func(s *control.Status) {
			underlay, offload := a.network.Status(), a.offloading.Status(migration)
			s.Datastore, s.Health, s.Underlay, s.Offload = cfg.Datastore, a.server.Status(), &underlay, &offload
		},
		Served: func(m *control.Model) { m.Settings = a.settings() },
		Count: func(m *metrics.Metrics) {
			m.CountDropped(func() (map[string]uint64, error) {
				ctx, cancel := context.WithTimeout(context.Background(), driver.ScrapeTimeout)
				defer cancel()
				return readDropped(ctx)
			})
			m.WatchTables(func() []metrics.Table {
				ctx, cancel := context.WithTimeout(context.Background(), driver.ScrapeTimeout)
				defer cancel()
				return node.LimitedTables(ctx, daemon)
			})
		},
	}
	asked := a.audit(api.view, audit.Options{
		Trace: func(ctx context.Context, p vswitchd.TracedPacket) (vswitchd.Traced, error) {
			return daemon.Trace(ctx, cfg.Bridge, p)
		},
		Gateway: audit.Gateway{Port: ports.GatewayPort, MAC: ports.GatewayMAC}, LostInterfaces: a.lost.Attachments,
	})
	services, endServices := backend.ServicesBesideBridge(a.backendConfig, migration.EndServices)
	api.Driver = driver.New(driver.Config{
		Cluster:  cluster.Config{Node: cfg.NodeName, ServiceCIDRs: ports.ServiceCIDRs, Isolation: cfg.Isolation == config.IsolationNamespaces},
		Inputs:   driver.Inputs{Source: a.source, Attachments: a.watchAttachments},
		Backend:  a.backend,
		Becomes:  a.becomes,
		Handover: a.handover(ctx, migration),
		Managers: all,
		Stages:   a.stages(a.startupHandover(migration), back, conntrack, br, host, hosts.Table.Stage(), senders, tunnelPort.Stage, firewalls, forwards, egress, egressAddresses, services, endServices, backend.RemovePodSources(a.backendConfig)),
		View:     api.view,
		Modules: append(slices.Concat(api.modules(), fwd.modules(), a.serviceProxy(api, timing, fwd.tenants)),
			driver.Source(api.view, addressesNeeded, a.watchHostAddresses), driver.Source(api.view, "", a.watchHops(hops)), driver.Source(api.view, "", a.offloading.Run),
			a.egressModule(api.view), hosts.Module(), existing.Module(), staged.New(api.view, begun, ports.ServiceCIDRs, staged.DefaultInterval).Module(), revalidate.NewTranslations(api.view, sources, timing).Module(), asked, a.verify(api.view), a.lost.Module(api.view), node.Peers(api.view), watches),
		Log: log, Timing: timing,
	})
	migration.OnCarried(existing.Carried)
	return api, br
}

// watchSwitch tells the driver when the switch may have lost programmed state, and when it answers again.
func (a *agent) watchSwitch(ctx context.Context, v *driver.View, br *node.Bridge) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-br.Broken():
			v.Post(ctx, func() { v.Lost(err) })
		case <-a.daemon.Answers():
			v.Post(ctx, v.RetryNow)
		}
	}
}

// watchAttachments reports the pods' ports on the bridge.
func (a *agent) watchAttachments(ctx context.Context, update func(model.Update), synced func()) error {
	return node.NewPortless().Watch(ctx, func(update func(model.Update)) error {
		return a.attachments.WatchAttachments(ctx, update, synced, func(err error) {
			a.log.Warn("attachment ignored", "component", "ovsdb", "error", err)
		})
	}, update)
}

// watchTunnels has the switch asked for its routes to peers, where it has a routing table of its own.
func (a *agent) watchTunnels() {
	mode := a.backendConfig.TrafficMode
	if a.network.Datapath() == ovsdb.DatapathNetdev && (mode == model.Encap || mode == model.Hybrid) {
		a.tunnels = vswitchd.NewTunnelRoutes(a.cfg.OVSRunDir, ovsdb.PhysicalBridge, a.cfg.NodeName)
	}
}

// tunnelProblems returns the peers to which the switch sends tunnel packets by a wrong port or from a wrong address.
func (a *agent) tunnelProblems() (all []model.Problem) {
	if a.tunnels == nil || a.tunnels.Problem() != "" {
		return nil // none, or a reason why the node is not ready
	}
	for _, why := range a.tunnels.Problems() {
		all = append(all, model.Problem{Object: model.NodeRef(a.cfg.NodeName), Reason: why})
	}
	return all
}

// watchHostAddresses reports this node's addresses. Their subnets matter only if packets between
// nodes are routed.
func (a *agent) watchHostAddresses(ctx context.Context, update func(model.HostAddressesUpdate)) error {
	var uplink func() string
	if a.network.Datapath() == ovsdb.DatapathNetdev {
		uplink = func() string { return a.network.Status().Uplink }
	}
	return hostnet.WatchAddresses(ctx, uplink, func(all []netip.Addr, subnets []netip.Prefix) {
		if m := a.backendConfig.TrafficMode; m == model.Encap || m == model.WireGuard {
			subnets = nil
		}
		update(model.HostAddressesUpdate{Addresses: all, Subnets: subnets})
	}, func(err error) {
		a.log.Warn("this node's addresses may be out of date", "component", "netlink", "error", err)
	})
}

// watchHops reports the next hops of routed packets.
func (a *agent) watchHops(hops *hostnet.Hops) func(context.Context, func(model.HopsUpdate)) error {
	return func(ctx context.Context, update func(model.HopsUpdate)) error {
		return hops.Run(ctx, func(all []model.Hop) { update(model.HopsUpdate{Hops: all}) }, func(err error) {
			a.log.Warn("the senders of routed packets may be out of date", "component", "netlink", "error", err)
		})
	}
}

// routes returns the manager of this node's routes to pods.
func (a *agent) routes(host *hostnet.Reconciler) *managers.RouteManager {
	base := hostnet.State{
		Gateway: model.GatewayPort, VirtualMAC: pipeline.VirtualMAC(),
		RouteTable: hostnet.DefaultRouteTable, RulePriority: hostnet.DefaultRulePriority,
		AwayMark: rules.MarkAway, AwayMAC: pipeline.AwayMAC(), NodesByUplink: a.backendConfig.Multitenant(),
	}
	if a.encryption != nil {
		base.Device = model.WireGuardDevice
	}
	return managers.NewRouteManager(a.cfg.NodeName, a.backendConfig.TrafficMode, base, host)
}

// serviceProxy returns the module of Services, if the agent serves them.
func (a *agent) serviceProxy(to *api, timing driver.Timing, limit *tenants.Tenants) []driver.Module {
	if !a.backendConfig.ServiceProxy {
		return nil
	}
	o := serviceproxy.Options{
		Node: a.cfg.NodeName, NodePortAddresses: a.cfg.NodePortAddresses, Resync: timing.Resync, Log: a.log.With("component", "services"),
		KubeProxy: func(ctx context.Context) ([]string, error) { return backend.KubeProxy(ctx, a.backendConfig.NetNS) },
		Bridge:    a.backendConfig.Switch.Node,
	}
	if limit != nil {
		o.Reaches, o.Prefixes = limit.Reaches, a.backendConfig.Switch.Node.ServiceCIDRs
	}
	to.services = serviceproxy.New(to.view, o)
	if limit != nil {
		limit.OnChange(to.services.Reconsider)
	}
	return []driver.Module{to.services.Module()}
}

// egress returns the module of Egresses.
func (a *agent) egress(v *driver.View) *egress.Egress {
	o := egress.Options{Addresses: a.addresses, Node: a.cfg.NodeName, Namespace: agentNamespace(), Log: a.log.With("component", "egress")}
	if s, ok := a.source.(*kubernetes.Source); ok {
		o.API = s.Dynamic()
	}
	return egress.New(v, o)
}

// egressModule returns the module of Egresses. With pipelineVariant: openshift there is none: the pods that an Egress selects are closed.
func (a *agent) egressModule(v *driver.View) driver.Module {
	if a.backendConfig.Multitenant() {
		return driver.Module{}
	}
	return a.egress(v).Module()
}

// audit returns the module of the audit. With pipelineVariant: openshift there is none: it knows the packets' way through the other pipeline.
func (a *agent) audit(v *driver.View, o audit.Options) driver.Module {
	if a.backendConfig.Multitenant() {
		return driver.Module{}
	}
	return audit.New(v, o).Module()
}

// hosts returns the module of the policies of the node itself.
func (a *agent) hosts(v *driver.View) *hosts.Module {
	o := hosts.Options{Dir: filepath.Join(a.cfg.StateDir, backend.HostsDir), Log: a.log.With("component", "hosts")}
	var servers []uint16
	if s, ok := a.source.(*kubernetes.Source); ok {
		o.Reach, o.Conditions, servers = s.Reach, s, s.Ports()
		o.Lease = hosts.LeaseOf(s.Dynamic(), a.cfg.NodeName)
	}
	o.Failsafe, o.TrafficMode = backend.FailsafeOf(a.cfg, servers), a.backendConfig.TrafficMode
	o.Table = backend.NewHosts(a.backendConfig, o.Failsafe)
	return hosts.New(v, o)
}

// established returns the carrier if connections that policy denies are to end.
func (a *agent) established(carrier *carry.Carrier) revalidate.Established {
	if a.cfg.ExistingConnections != config.Revalidate {
		return nil
	}
	return carrier
}

// settings are the settings that affect the programmed state.
func (a *agent) settings() control.Settings {
	at := a.backendConfig.Switch
	return control.Settings{
		OVSRunDir: at.RunDir, Bridge: at.Bridge, Userspace: at.Node.Userspace,
		Masquerade: a.backendConfig.Masquerade, SNAT: at.Node.SNAT != nil, TrafficMode: a.backendConfig.TrafficMode, TunnelPort: a.backendConfig.TunnelPort, ServiceCIDRs: at.Node.ServiceCIDRs, Offload: a.offloading.Active(),
		NFTablesLayout: a.backendConfig.Layout, Isolation: a.cfg.Isolation == config.IsolationNamespaces,
		ServiceProxy: a.backendConfig.ServiceProxy, NodePortAddresses: a.backendConfig.NodePortAddresses, ClusterCIDR: a.backendConfig.Cluster,
	}
}
