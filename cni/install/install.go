package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
)

// Options are the files to install, their places, and the settings to check.
type Options struct {
	// Source is the directory of the plugins, Conflist the network configuration.
	Source, Conflist string
	// BinDir and ConfDir are where the node's container runtime looks for plugins
	// and configurations.
	BinDir, ConfDir string
	// UnitDir is the node's directory for units of systemd, "" if policies of the node itself are not loaded at boot. NodeBinDir is BinDir by its name on
	// the node.
	UnitDir, NodeBinDir string
	// StateDir keeps the record.
	StateDir string
	// PolicyOnly says that another CNI owns the pods' interfaces: the configuration is made of that CNI's
	// (confdir.Chained), and the node needs no Open vSwitch. Conflist is then the name of the file only.
	PolicyOnly bool
	// Backend and Datapath are the agent's settings of these names.
	Backend, Datapath string
	// InUse is the type of the datapath that a running agent uses, or "". Its requirements
	// may be met in another container.
	InUse string
	// OVSRunDir has the control socket of ovs-vswitchd.
	OVSRunDir string
	// Tunnel is the type of the tunnels between nodes, "" if none are used.
	Tunnel string
	// WireGuardPort is the UDP port of encrypted packets between nodes, zero without encryption.
	WireGuardPort int
	// SNAT is set if the switch translates the sources of pods' packets to the outside.
	SNAT bool
	// OtherSwitch is the socket of the database of a distribution's Open vSwitch, if it is not the usual one.
	OtherSwitch string
	// Kernel returns why the kernel has no datapath, or nil. It is underlay.KernelDatapath if
	// nil; tests replace it.
	Kernel func() error
	// Connections returns the tables of connections. It reads the node's if nil; tests replace it.
	Connections func(context.Context) []ConnectionTable
	// Try programs the backend in a network namespace where it does no harm.
	Try func(context.Context) error
}

// Install checks the node, and installs the plugins and the configuration. The configuration
// comes last: with it the node becomes ready for pods. If a check fails, Install changes
// nothing, so an earlier version continues to work.
func (o Options) Install(ctx context.Context, report func(Finding)) error {
	config, plugins, err := o.conflist()
	if err != nil {
		return err
	}
	o.LoadModules(ctx, report)
	if err := o.check(ctx, report); err != nil {
		return err
	}
	r, err := readRecord(o.StateDir)
	if err != nil {
		return err
	}
	if err := o.noteSettings(r.Settings); err != nil {
		return err
	}
	if err := o.plugins(r, plugins, report); err != nil {
		return err
	}
	o.bootUnit(r, report)
	path := filepath.Join(o.ConfDir, filepath.Base(o.Conflist))
	did, err := o.place(r, r.Configs, path, config, 0o644)
	if err != nil {
		return err
	}
	report(Finding{Good, "network configuration " + path, did})
	for name := range r.Configs {
		if name == filepath.Base(path) {
			continue
		}
		if _, err := removeOwn(r.Configs, filepath.Join(o.ConfDir, name)); err != nil {
			return err
		}
	}
	return r.write(o.StateDir)
}

// noteSettings notes the node-wide settings that the agent changes, unless an earlier installation has.
func (o Options) noteSettings(noted map[string]string) error {
	keys := hostnet.NodeSettings()
	if o.PolicyOnly {
		keys = hostnet.BridgeSettings()
	}
	for _, key := range keys {
		if _, known := noted[key]; known {
			continue
		}
		value, err := sysctl.Read(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("settings before the installation: %w", err)
		}
		noted[key] = value
	}
	return nil
}
