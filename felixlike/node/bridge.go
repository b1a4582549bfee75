package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/uplink"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// Bridge keeps the bridge and its ports in the desired state, and owns the connection for
// the forwarding flows. It needs this node's own address, so it waits for the Node object.
type Bridge struct {
	cfg     ovsdb.Config
	network *Network
	// gatewayMTU is called with the MTU of the gateway port.
	gatewayMTU func(int)
	// connected is called for a new connection to the switch. empty is set if the switch has
	// no forwarding flows.
	connected func(empty bool)
	// readdressed is called after the node's addresses or routes moved to another interface.
	readdressed func()
	log         *slog.Logger
	// forwarding is the connection of the forwarding flows. programmed is the connection
	// of their last successful apply.
	forwarding backend.Link
	programmed *openflow.Conn
	// owner is that of the forwarding flows, others those of flows of the other pipeline.
	owner  uint16
	others []uint16
	// physical is the connection to the bridge with the uplink, for the flows of snat.
	physical backend.Link
	// snat is nil without the setting. Then flows of an earlier agent with it are removed once, and removed is set.
	snat    *pipeline.SNAT
	removed bool
	restore *flowRestore
	// lost gets the reason when the OpenFlow connection breaks.
	lost   chan error
	daemon *vswitchd.Client
	// unpurged is set while the datapath may have cached flows from before a change of
	// forwarding flows.
	unpurged bool
	// narrow is set after receive buffers could not be enlarged, so that this is logged once.
	narrow bool

	// uplink moves the node's addresses and routes.
	uplink  uplink.In
	node    string
	localIP netip.Addr
	client  *ovsdb.Client
	// ensured is set while bridge and ports have the desired state, moved while the uplink's
	// addresses have it, outdated after these addresses may have changed.
	ensured, moved, outdated bool
	// abandoned is the time since which no process serves the bridge with the node's
	// addresses, or zero.
	abandoned time.Time
}

// BridgeOptions configure a bridge.
type BridgeOptions struct {
	// DB is the configuration of the bridge without addresses, uplink and MTU.
	DB     ovsdb.Config
	RunDir string
	Flows  *openflow.FlowTable
	// Owner is the owner of Flows, pipeline.Owner if it is zero. Others are the owners of the flows of the other pipeline: its tables mean
	// other things, so these flows are removed from a new connection's switch before anything else is programmed, in this order.
	Owner   uint16
	Others  []uint16
	Network *Network
	// SNAT has the ports of translation by the switch; nil without it.
	SNAT       *pipeline.SNAT
	GatewayMTU func(int)
	Connected  func(empty bool)
	// Readdressed may be nil.
	Readdressed func()
	Log         *slog.Logger
}

func NewBridge(o BridgeOptions) *Bridge {
	b := &Bridge{cfg: o.DB, network: o.Network, gatewayMTU: o.GatewayMTU, connected: o.Connected, readdressed: o.Readdressed, log: o.Log, owner: cmp.Or(o.Owner, pipeline.Owner), others: o.Others, lost: make(chan error, 1), node: o.DB.NodeName, uplink: uplink.In(o.RunDir)}
	b.daemon = vswitchd.New(o.RunDir, o.DB.DatapathType)
	b.restore = &flowRestore{bridge: b, log: o.Log.With("component", "ovs")}
	b.forwarding = backend.Link{Socket: backend.Switch{RunDir: o.RunDir, Bridge: o.DB.Bridge}.ManagementSocket(), Flows: o.Flows, Lost: b.connectionLost}
	b.snat = o.SNAT
	b.physical = backend.Link{
		Socket: backend.Switch{RunDir: o.RunDir, Bridge: ovsdb.PhysicalBridge}.ManagementSocket(), Flows: openflow.NewFlowTable(pipeline.Owner, pipeline.Version), Lost: b.connectionLost,
	}
	return b
}

// OnUpdate takes this node's NodeUpdate, and a HostAddressesUpdate: the bridge follows the
// changes of the uplink's addresses.
func (b *Bridge) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		if ip := u.Node.Outer(); u.Node.Name == b.node && ip != b.localIP {
			b.localIP = ip
			b.Invalidate()
		}
	case model.HostAddressesUpdate:
		b.outdated = true
	}
}

// CompleteDeferredWork does nothing: Apply does.
func (b *Bridge) CompleteDeferredWork() {}

// Invalidate makes the next apply compare bridge and ports again.
func (b *Bridge) Invalidate() { b.ensured, b.moved = false, false }

// Apply brings bridge and ports to the desired state, connects for the forwarding flows, and
// returns the number of changes. It sends no forwarding flows over a connection that is newer
// than the last apply of policy: a switch that was just restarted has no policy.
func (b *Bridge) Apply(ctx context.Context) (int, error) {
	n, err := b.ensure(ctx)
	if err == nil {
		err = b.connect(ctx)
	}
	if err != nil {
		return n, errors.Join(err, b.rescue())
	}
	moved, err := b.moveUplink()
	if err != nil {
		// Another program may have removed the bridge: the next apply compares again.
		b.ensured = false
		err = errors.Join(err, b.rescue())
	}
	return n + moved, err
}

// rescueAfter is how long the node's addresses may be on a bridge that no process serves.
// Then the agent moves them back to the uplink. A normal restart of ovs-vswitchd is
// faster.
const rescueAfter = 3 * time.Second

// rescue keeps the node reachable when both ovs-vswitchd and its supervisor have ended.
// A running supervisor would do the same.
func (b *Bridge) rescue() error {
	abandoned, err := b.uplink.Abandoned(ovsdb.PhysicalBridge)
	switch {
	case err != nil || !abandoned:
		b.abandoned = time.Time{}
		return err
	case b.abandoned.IsZero():
		b.abandoned = time.Now()
	}
	if time.Since(b.abandoned) < rescueAfter {
		return nil
	}
	moved, err := b.uplink.Rescue(ovsdb.PhysicalBridge)
	if moved.Addresses > 0 || moved.Restored > 0 {
		b.log.Warn("no ovs-vswitchd serves the bridge that had the node's addresses: they are back on the uplink until one does",
			"component", "ovsdb", "addresses", moved.Addresses, "routes", moved.Routes, "restored", moved.Restored)
	}
	return err
}

// connect connects for the forwarding flows. For a new connection it reports whether the
// switch has no such flows, and whether it waits for them.
func (b *Bridge) connect(ctx context.Context) error {
	before := b.forwarding.Conn
	if err := b.forwarding.Connect(ctx); err != nil || b.forwarding.Conn == before {
		return err
	}
	awaits, err := b.daemon.AwaitsFlows(ctx)
	err = errors.Join(err, b.removeOthers(ctx))
	var flows []openflow.Installed
	if err == nil {
		flows, err = b.forwarding.Conn.Dump(ctx, b.owner)
	}
	if err != nil {
		b.forwarding.Close() // the next connect asks again
		return err
	}
	b.restore.found(awaits)
	b.connected(len(flows) == 0)
	return nil
}

// removeOthers removes the flows of the other pipeline. Until the forwarding flows come, the bridge drops everything.
func (b *Bridge) removeOthers(ctx context.Context) error {
	for _, owner := range b.others {
		none := backend.Link{Socket: b.forwarding.Socket, Flows: openflow.NewFlowTable(owner, pipeline.Version)}
		did, err := none.Apply(ctx)
		none.Close()
		if err != nil {
			return fmt.Errorf("remove the flows of another pipelineVariant: %w", err)
		}
		if did.Writes > 0 {
			b.unpurged = true
			b.log.Info("removed the flows of another pipelineVariant", "component", "ovs")
		}
	}
	return nil
}

// ensure brings bridge and ports to the desired state.
func (b *Bridge) ensure(ctx context.Context) (int, error) {
	if b.ensured {
		return 0, nil
	}
	if !b.localIP.IsValid() {
		return 0, fmt.Errorf("node %s has no InternalIP, which the tunnel needs", b.node)
	}
	wanted, err := b.wanted(ctx)
	if err != nil {
		return 0, err
	}
	if b.client == nil || !reflect.DeepEqual(wanted, b.cfg) {
		if err := b.open(ctx, wanted); err != nil {
			return 0, err
		}
	}
	if err := b.removePhysicalFlows(ctx); err != nil {
		return 0, err
	}
	before := b.client.Writes()
	err = b.client.EnsureBridge(ctx)
	b.ensured = err == nil
	return b.client.Writes() - before, err
}

// wanted returns the bridge's desired state for this node's network as it is now.
func (b *Bridge) wanted(ctx context.Context) (ovsdb.Config, error) {
	cfg := b.cfg
	found, err := b.network.find(ctx, b.localIP)
	if err != nil {
		return cfg, err
	}
	cfg.LocalIP, cfg.MTU = b.localIP, found.MTU
	b.gatewayMTU(found.MTU)
	if cfg.DatapathType != ovsdb.DatapathNetdev {
		return cfg, nil
	}
	cfg.Uplink = found.Uplink
	cfg.UplinkMAC, err = uplink.MAC(cfg.Uplink)
	return cfg, err
}

func (b *Bridge) open(ctx context.Context, cfg ovsdb.Config) error {
	client, err := ovsdb.Open(ctx, cfg)
	if err != nil {
		return err
	}
	if b.client != nil {
		b.client.Close()
	}
	b.client, b.cfg = client, cfg
	return nil
}

// moveUplink moves the node's addresses to the bridge. It runs after a connection to the
// switch succeeded, because a bridge without a running switch forwards nothing.
func (b *Bridge) moveUplink() (int, error) {
	if b.cfg.Uplink == "" || b.moved && !b.outdated {
		return 0, nil
	}
	m, err := b.uplink.Move(b.cfg.Uplink, ovsdb.PhysicalBridge, b.localIP)
	b.moved, b.outdated = err == nil, false
	if m.Restored > 0 {
		b.log.Warn("repaired routes of the uplink that were lost with the bridge", "component", "ovsdb", "uplink", b.cfg.Uplink, "routes", m.Restored)
	}
	n := m.Addresses + m.Routes + m.Forgotten + m.Restored
	if n > 0 && b.readdressed != nil {
		b.readdressed()
	}
	return n, err
}

// ApplyFlows brings the forwarding flows to the desired state.
func (b *Bridge) ApplyFlows(ctx context.Context) (backend.Applied, error) {
	if !b.ensured || b.cfg.Uplink != "" && !b.moved {
		return backend.Applied{}, errors.New("the bridge is not in the desired state yet")
	}
	did, err := b.forwarding.Send(ctx)
	b.unpurged = b.unpurged || did.Writes > 0
	if err == nil && b.unpurged {
		err = b.daemon.Purge(ctx)
		b.unpurged = err != nil
		b.widenBuffers()
	}
	if err == nil {
		b.programmed = b.forwarding.Conn
		// Only now: these flows lead packets of the host to the other bridge.
		err = b.applyPhysicalFlows(ctx, &did)
	}
	return did, err
}

// widenBuffers gives new ports of the userspace datapath a larger receive buffer, and the
// thread that reads it priority. It runs after a change of forwarding flows: a new port always
// brings one. If it fails, packets still pass, but bursts lose some.
func (b *Bridge) widenBuffers() {
	_, err := b.daemon.WidenBuffers()
	if err = errors.Join(err, b.daemon.PreferPackets()); err != nil && !b.narrow {
		b.narrow = true
		b.log.Info("the agent cannot set receive buffers and priority of ovs-vswitchd: felixlike-agent ovs sets them if it started the daemon", "component", "ovs", "reason", err)
	}
}

// Problems returns what is wrong with the bridge although its stage has succeeded.
func (b *Bridge) Problems() []model.Problem { return b.restore.problem(b.node) }

// RestoreStage returns the stage that ends the wait of a restarted switch.
func (b *Bridge) RestoreStage() backend.Stage { return b.restore.stage() }

// Broken delivers the reason when the OpenFlow connection breaks.
func (b *Bridge) Broken() <-chan error { return b.lost }

// connectionLost reports to the driver that the connection has ended.
func (b *Bridge) connectionLost(reason error) {
	select {
	case b.lost <- reason:
	default: // the driver knows already
	}
}

func (b *Bridge) Close() {
	b.forwarding.Close()
	b.physical.Close()
	if b.client != nil {
		b.client.Close()
	}
}
