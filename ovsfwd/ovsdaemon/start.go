package ovsdaemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Available returns an error that names the missing programs, or nil.
func Available() error {
	for _, tool := range []string{"ovsdb-server", "ovs-vswitchd", "ovsdb-tool", "ovs-vsctl", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("open vswitch not available: %w", err)
		}
	}
	if _, err := os.Stat(Schema); err != nil {
		return fmt.Errorf("open vswitch not available: %w", err)
	}
	if os.Geteuid() != 0 {
		return errors.New("open vswitch not available: not root")
	}
	return nil
}

// Start creates the database if need be, starts both daemons and waits until they serve. After an error it
// stops them again.
func Start(ctx context.Context, opts Options) (*Daemons, error) {
	d, err := prepare(opts)
	if err != nil {
		return nil, err
	}
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// prepare makes the directories.
func prepare(opts Options) (*Daemons, error) {
	if opts.Schema == "" {
		opts.Schema = Schema
	}
	if opts.DatabaseDir == "" {
		opts.DatabaseDir = opts.Dir
	}
	for _, dir := range []*string{&opts.Dir, &opts.DatabaseDir} {
		path, err := filepath.Abs(*dir)
		if err != nil {
			return nil, fmt.Errorf("directory %q: %w", *dir, err)
		}
		*dir = path
		if len(path) > maxDir {
			return nil, fmt.Errorf("directory %q: longer than %d bytes, socket paths would not fit", path, maxDir)
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, fmt.Errorf("directory of Open vSwitch: %w", err)
		}
	}
	return &Daemons{opts: opts}, nil
}

func (d *Daemons) start(ctx context.Context) error {
	if err := d.openDB(ctx); err != nil {
		return err
	}
	return d.StartVSwitchd(ctx)
}

// openDB has the database served.
func (d *Daemons) openDB(ctx context.Context) error {
	d.unreadable = nil
	if err := d.createDB(ctx); err != nil {
		return err
	}
	if err := d.startDB(ctx); err != nil {
		return err
	}
	// The database starts without its one root row; vswitchd waits for it.
	_, err := d.vsctl(ctx, "init")
	return err
}

// StartVSwitchd starts ovs-vswitchd alone, after KillVSwitchd, and waits until
// it answers. On the kernel's datapath, cached flows stay in force until the agent has
// programmed it: see setAwaitFlows.
func (d *Daemons) StartVSwitchd(ctx context.Context) error {
	var err error
	if d.awaited, err = d.setAwaitFlows(ctx); err != nil {
		return err
	}
	args := []string{"unix:" + d.DBSocket()}
	if !d.opts.Kernel {
		args = append([]string{"--disable-system"}, args...)
	}
	p, err := d.spawn("ovs-vswitchd", args...)
	if err != nil {
		return err
	}
	d.vswitchd = p
	return p.wait(ctx, d.control(p))
}

// RestartDB kills ovsdb-server and starts it again on the same database, or on an empty one
// if it cannot read that.
func (d *Daemons) RestartDB(ctx context.Context) error {
	err := d.db.kill()
	d.db = nil
	if err != nil {
		return err
	}
	return d.openDB(ctx)
}

func (d *Daemons) startDB(ctx context.Context) error {
	p, err := d.spawn("ovsdb-server",
		"--remote=punix:"+d.DBSocket(), d.database())
	if err != nil {
		return err
	}
	d.db = p
	return p.wait(ctx, d.DBSocket())
}
