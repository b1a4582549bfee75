// Package ovsdaemon runs a private Open vSwitch: one ovsdb-server and one ovs-vswitchd as foreground
// children, with their own run directory and database, inside a network namespace. Tests and the lab Start
// one. On a node where the agent runs Open vSwitch (package supervisor), Keep does, and restarts daemons that
// end.
//
// It owns the two processes and the files below Options.Dir and DatabaseDir and
// nothing else; it never touches the system's Open vSwitch. It is tested by
// starting, killing and restarting real daemons.
package ovsdaemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Schema is where distributions install the Open_vSwitch database schema.
const Schema = "/usr/share/openvswitch/vswitch.ovsschema"

// maxDir keeps unix socket paths below Dir within sockaddr_un's 108 bytes; the
// longest name the daemons put there is ovs-vswitchd's control socket.
const maxDir = 108 - 1 - len("/ovs-vswitchd.1234567.ctl")

// Options say where a private Open vSwitch lives.
type Options struct {
	// Dir holds sockets, pid and log files. It is made if missing.
	Dir string
	// DatabaseDir holds the database; empty means Dir. A database that is there
	// already is kept, as over a reboot.
	DatabaseDir string
	// Kernel offers the kernel's datapath beside the userspace one.
	Kernel bool
	// Log is where the daemons' logs go; nil means to files in Dir.
	Log *os.File
	// NetNS is the network namespace to run in: a name below /run/netns or a
	// path (with a slash). Empty means the caller's namespace.
	NetNS string
	// Schema is the database schema file; empty means the package's Schema.
	Schema string
}

// Daemons is a running private Open vSwitch.
type Daemons struct {
	opts     Options
	db       *process
	vswitchd *process
	// awaited reports that ovs-vswitchd was started to await its flows.
	awaited bool
	// unreadable is why the database was replaced by an empty one, or nil.
	unreadable error
}

// Dir returns the run directory, absolute. Bridge management sockets
// (<bridge>.mgmt) appear in it.
func (d *Daemons) Dir() string { return d.opts.Dir }

// DBSocket returns the path of the OVSDB socket.
func (d *Daemons) DBSocket() string { return filepath.Join(d.opts.Dir, "db.sock") }

// VSwitchdControl returns the path of ovs-vswitchd's control socket, for
// ovs-appctl -t: the one that it makes when nothing else is asked for.
func (d *Daemons) VSwitchdControl() string { return d.control(d.vswitchd) }

func (d *Daemons) control(p *process) string {
	return filepath.Join(d.opts.Dir, fmt.Sprintf("ovs-vswitchd.%d.ctl", p.pid()))
}

// Env returns the environment in which ovs-ofctl, ovs-vsctl and ovs-appctl
// find these daemons rather than the system's.
func (d *Daemons) Env() []string {
	return []string{"OVS_RUNDIR=" + d.opts.Dir, "OVS_LOGDIR=" + d.opts.Dir, "OVS_DBDIR=" + d.opts.Dir}
}

// PIDs returns the process ids of ovsdb-server and ovs-vswitchd, 0 for one
// that does not run.
func (d *Daemons) PIDs() (db, vswitchd int) { return d.db.pid(), d.vswitchd.pid() }

// KillVSwitchd ends ovs-vswitchd the hard way (SIGKILL) and waits for its end:
// all flows are lost, the database stays.
func (d *Daemons) KillVSwitchd() error {
	err := d.vswitchd.kill()
	d.vswitchd = nil
	return err
}

// Stop ends both daemons: SIGTERM, then SIGKILL after five seconds. It may be
// called again.
func (d *Daemons) Stop() error {
	err := errors.Join(d.vswitchd.stop(), d.db.stop())
	d.vswitchd, d.db = nil, nil
	return err
}

// spawn starts one daemon with the options both share.
func (d *Daemons) spawn(name string, args ...string) (*process, error) {
	if err := d.removeSockets(name); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	argv := []string{name, "--no-chdir", "--pidfile=" + pidFile(d.opts.Dir, name)}
	if d.opts.Log == nil {
		argv = append(argv, "--log-file="+filepath.Join(d.opts.Dir, name+".log"), "-vconsole:off")
	} else {
		argv = append(argv, "-vconsole:info", "-vsyslog:off")
	}
	argv = append(argv, args...)
	if d.opts.NetNS != "" {
		argv = append([]string{"nsenter", "--net=" + nsPath(d.opts.NetNS), "--"}, argv...)
	}
	return startProcess(name, argv, append(os.Environ(), d.Env()...), d.opts.Log)
}

// removeSockets removes the sockets of a killed daemon: they would be mistaken for those of a live one.
func (d *Daemons) removeSockets(name string) error {
	stale, err := filepath.Glob(filepath.Join(d.opts.Dir, name+".*.ctl"))
	if err != nil {
		return err
	}
	if name == "ovsdb-server" {
		stale = append(stale, d.DBSocket())
	}
	return remove(stale...)
}

// run runs a short-lived tool against the private run directory.
func (d *Daemons) run(ctx context.Context, name string, args ...string) error {
	_, err := d.output(ctx, name, args...)
	return err
}

func (d *Daemons) output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), d.Env()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

func nsPath(ns string) string {
	if strings.Contains(ns, "/") {
		return ns
	}
	return filepath.Join("/run/netns", ns)
}

func pidFile(dir, name string) string { return filepath.Join(dir, name+".pid") }
