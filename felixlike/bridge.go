package felixlike

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/uplink"
)

// bridge keeps the bridge and its ports as wanted, and the forwarding flows'
// connection to it. It needs this node's own address, so it waits for the
// node's object.
type bridge struct {
	cfg ovsdb.Config
	log *slog.Logger
	// forwarding is the connection of the forwarding flows.
	forwarding link
	// lost tells the driver that the OpenFlow connection broke.
	lost chan error

	node    string
	localIP netip.Addr
	client  *ovsdb.Client
	ensured bool
}

func newBridge(cfg ovsdb.Config, runDir string, flows *openflow.FlowTable, log *slog.Logger) *bridge {
	b := &bridge{cfg: cfg, log: log, lost: make(chan error, 1), node: cfg.NodeName}
	b.forwarding = link{socket: Switch{RunDir: runDir, Bridge: cfg.Bridge}.management(), flows: flows, lost: b.tell}
	return b
}

// OnUpdate takes this node's NodeUpdate.
func (b *bridge) OnUpdate(u model.Update) {
	if n, ok := u.(model.NodeUpdate); ok && n.Node.Name == b.node {
		if ip := n.Node.Address(model.IPv4); ip != b.localIP {
			b.localIP, b.ensured = ip, false
		}
	}
}

// CompleteDeferredWork does nothing: Apply does.
func (b *bridge) CompleteDeferredWork() {}

// invalidate makes the next apply compare bridge and ports again.
func (b *bridge) invalidate() { b.ensured = false }

// apply brings bridge and ports to what is wanted, connects for the forwarding
// flows, and returns the mutating operations it took. Forwarding flows are sent
// over no connection that is younger than what policy programs behind this: a
// switch that has just been restarted has no policy.
func (b *bridge) apply(ctx context.Context) (int, error) {
	n, err := b.ensure(ctx)
	if err == nil {
		err = b.forwarding.connect(ctx)
	}
	return n, err
}

func (b *bridge) ensure(ctx context.Context) (int, error) {
	if b.ensured {
		return 0, nil
	}
	if !b.localIP.IsValid() {
		return 0, fmt.Errorf("node %s has no IPv4 InternalIP, which the tunnel needs", b.node)
	}
	if b.client == nil || b.cfg.LocalIP != b.localIP {
		if err := b.open(ctx); err != nil {
			return 0, err
		}
	}
	before := b.client.Writes()
	err := b.client.EnsureBridge(ctx)
	var moved uplink.Moved
	if err == nil && b.cfg.Uplink != "" {
		moved, err = uplink.Move(b.cfg.Uplink, ovsdb.PhysicalBridge)
	}
	b.ensured = err == nil
	return b.client.Writes() - before + moved.Addresses + moved.Routes, err
}

func (b *bridge) open(ctx context.Context) error {
	cfg := b.cfg
	cfg.LocalIP = b.localIP
	if cfg.Uplink != "" {
		mac, err := uplink.MAC(cfg.Uplink)
		if err != nil {
			return err
		}
		cfg.UplinkMAC = mac
	}
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

// applyFlows brings the forwarding flows to what is wanted.
func (b *bridge) applyFlows(ctx context.Context) (Applied, error) {
	if !b.ensured {
		return Applied{}, errors.New("not before the bridge is as wanted")
	}
	return b.forwarding.send(ctx)
}

// tell tells the driver that the connection has ended.
func (b *bridge) tell(reason error) {
	select {
	case b.lost <- reason:
	default: // the driver knows already
	}
}

func (b *bridge) close() {
	b.forwarding.close()
	if b.client != nil {
		b.client.Close()
	}
}
