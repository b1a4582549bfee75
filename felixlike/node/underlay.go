package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/underlay"
)

const (
	// databaseRetry is the pause between two tries to reach ovsdb-server, which starts at
	// the same time as the agent; databaseLog is the pause between two logs of this.
	databaseRetry = 200 * time.Millisecond
	databaseLog   = 10 * time.Second
	// databaseHelp is what an operator can do about a database that does not answer.
	databaseHelp = "start Open vSwitch (felixlike-agent ovs, or the distribution's service), or set ovsRunDir to the directory of its db.sock"
	// switchPatience is how long the start waits until ovs-vswitchd has written its
	// datapath types to OVSDB, which it does after its first run.
	switchPatience = 10 * time.Second
)

// OpenDatabase connects to ovsdb-server, and waits for it.
func OpenDatabase(ctx context.Context, cfg ovsdb.Config, log *slog.Logger) (*ovsdb.Client, error) {
	var logged time.Time
	for {
		client, err := ovsdb.Open(ctx, cfg)
		if err == nil {
			return client, nil
		}
		if time.Since(logged) > databaseLog {
			logged = time.Now()
			log.Warn("waiting for Open vSwitch's database: "+databaseHelp, "component", "ovsdb", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("open vswitch database: %w", errors.Join(ctx.Err(), err))
		case <-time.After(databaseRetry):
		}
	}
}

// chooseDatapath returns the type of the bridge's datapath, and why.
func chooseDatapath(ctx context.Context, set string, db *ovsdb.Client) (choice, why string, err error) {
	if set != datapathAuto {
		return set, "set in the configuration", nil
	}
	kernel := underlay.KernelDatapath()
	waiting, cancel := context.WithTimeout(ctx, switchPatience)
	defer cancel()
	// Without an answer of ovs-vswitchd, the kernel's support decides alone.
	_ = db.WaitDatapaths(waiting)
	offered, has, err := db.Datapaths(ctx)
	if err != nil {
		return "", "", fmt.Errorf("choose the datapath: %w", err)
	}
	choice, why = underlay.Datapath(kernel, offered, has)
	return choice, why, nil
}

// datapathAuto is the setting that chooses the datapath by the node's kernel.
const datapathAuto = "auto"

// Network has the detected network of this node. Several goroutines may use it. The
// datapath stays the same, all else may change while the agent runs.
type Network struct {
	// uplink, mtu and tunnel are the settings.
	uplink, tunnel string
	mtu            int
	mode           model.TrafficMode
	taken          underlay.Taken
	log            *slog.Logger

	mu    sync.Mutex
	found control.Underlay
}

// Encrypts notes the key and the UDP port of this node's WireGuard device.
func (n *Network) Encrypts(key model.PublicKey, port uint16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found.PublicKey, n.found.WireGuardPort = key, port
}

// NewNetwork chooses the datapath; all else waits for this node's object.
func NewNetwork(ctx context.Context, cfg *config.Effective, db *ovsdb.Client, log *slog.Logger) (*Network, error) {
	log = log.With("component", "underlay")
	datapath, why, err := chooseDatapath(ctx, cfg.Datapath, db)
	if err != nil {
		return nil, err
	}
	if datapath == ovsdb.DatapathNetdev && cfg.Datapath == datapathAuto {
		log.Warn("USERSPACE DATAPATH: packets pass through ovs-vswitchd, at a fraction of the kernel's throughput", "datapath", datapath, "why", why)
	} else {
		log.Info("datapath", "datapath", datapath, "why", why)
	}
	var mode model.TrafficMode
	if err := mode.UnmarshalText([]byte(cfg.Traffic())); err != nil {
		return nil, err
	}
	return &Network{
		mode: mode, uplink: cfg.Uplink, mtu: cfg.MTU, tunnel: cfg.Tunnel, taken: db.Uplink, log: log,
		found: control.Underlay{Datapath: datapath, DatapathWhy: why, TrafficMode: mode},
	}, nil
}

func (n *Network) Datapath() string { return n.Status().Datapath }

// MTU returns the MTU of pods, 0 while it is not known.
func (n *Network) MTU() int { return n.Status().MTU }

func (n *Network) Status() control.Underlay {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.found
}

// find detects the network again, for the node with this address. If it finds nothing, for
// example while the uplink is being reconfigured, the last result stays.
func (n *Network) find(ctx context.Context, node netip.Addr) (control.Underlay, error) {
	now, err := n.look(ctx, node)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		if n.found.MTU != 0 {
			n.log.Warn("this node's network cannot be detected now: the last result stays in use", "error", err)
			return n.found, nil
		}
		return n.found, err
	}
	if now != n.found {
		n.log.Info("network of this node", "uplink", now.Uplink, "why", now.UplinkWhy, "mtu", now.MTU, "mtuWhy", now.MTUWhy)
	}
	n.found = now
	return now, nil
}

func (n *Network) look(ctx context.Context, node netip.Addr) (control.Underlay, error) {
	now := n.Status()
	uplink, err := underlay.Named(n.uplink)
	if n.uplink == "" {
		uplink, err = underlay.FindUplink(ctx, node, n.taken)
	}
	if err != nil {
		return now, err
	}
	now.Uplink, now.UplinkWhy = uplink.Name, uplink.Why
	now.MTU, now.MTUWhy = n.mtu, "set in the configuration"
	if n.mtu != 0 {
		return now, nil
	}
	switch n.mode {
	case model.NoEncap:
		now.MTU, err = underlay.RoutedMTU(uplink)
		now.MTUWhy = "the uplink's: there is no tunnel"
	case model.WireGuard:
		now.MTU, err = underlay.PodMTU(uplink, config.WireGuard, model.FamilyOf(node))
		now.MTUWhy = fmt.Sprintf("the uplink's %d minus WireGuard's header", uplink.MTU)
	default:
		now.MTU, err = underlay.PodMTU(uplink, n.tunnel, model.FamilyOf(node))
		now.MTUWhy = fmt.Sprintf("the uplink's %d minus the tunnel's header", uplink.MTU)
	}
	return now, err
}
