package ovsdaemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// KeyAwaitFlows, in other_config of the root row, makes a starting ovs-vswitchd keep the cached flows of
	// the kernel's datapath until the key is removed.
	KeyAwaitFlows = "flow-restore-wait"
	// MarkAwaitsAgent, in external_ids of the root row, makes the agent remove KeyAwaitFlows. Daemons sets
	// both before it starts ovs-vswitchd.
	MarkAwaitsAgent = "felixlike-awaits-agent"
	// awayAfter is how long ovs-vswitchd may be away before Hooks.Away is called,
	// and the time between the calls: a restart takes a fraction of it.
	awayAfter = 2 * time.Second
)

// setAwaitFlows sets KeyAwaitFlows before ovs-vswitchd starts, if all bridges use the
// kernel's datapath, and reports whether it did. Otherwise it removes the key. Without the
// key ovs-vswitchd removes cached flows at its start, and no packet reaches a pod until
// the agent has programmed it. The userspace datapath has no cached flows at a start.
func (d *Daemons) setAwaitFlows(ctx context.Context) (bool, error) {
	if d.db.pid() == 0 {
		return false, errors.New("start ovs-vswitchd: ovsdb-server does not run")
	}
	await := false
	if d.opts.Kernel {
		out, err := d.vsctl(ctx, "--data=bare", "--format=csv", "--no-headings", "--columns=datapath_type", "list", "Bridge")
		if err != nil {
			return false, fmt.Errorf("read the datapaths of the bridges: %w", err)
		}
		await = allOfKernel(out)
	}
	change := []string{"remove", "Open_vSwitch", ".", "other_config", KeyAwaitFlows}
	if await {
		change = []string{"set", "Open_vSwitch", ".", "other_config:" + KeyAwaitFlows + "=true", "external_ids:" + MarkAwaitsAgent + "=true"}
	}
	if _, err := d.vsctl(ctx, change...); err != nil {
		return false, fmt.Errorf("change %s: %w", KeyAwaitFlows, err)
	}
	return await, nil
}

// forgetAwaitFlows removes the key at the end of ovs-vswitchd. Every start sets it again,
// but an earlier version of felixlike, to which a node goes back, does not know it.
func (d *Daemons) forgetAwaitFlows() error {
	ctx, cancel := context.WithTimeout(context.Background(), awayAfter)
	defer cancel()
	if _, err := d.vsctl(ctx, "remove", "Open_vSwitch", ".", "other_config", KeyAwaitFlows); err != nil {
		return fmt.Errorf("%s stays in the database: %w", KeyAwaitFlows, err)
	}
	return nil
}

// allOfKernel reports whether there is a bridge and all bridges use the kernel's datapath.
// The list has one type a line; an empty line is the default, the kernel's.
func allOfKernel(list string) bool {
	for line := range strings.Lines(list) {
		if t := strings.Trim(strings.TrimSpace(line), `"`); t != "" && t != "system" {
			return false
		}
	}
	return list != ""
}

// awaitsFlows reports whether the agent has yet to program ovs-vswitchd.
func (d *Daemons) awaitsFlows(ctx context.Context) (bool, error) {
	out, err := d.vsctl(ctx, "--if-exists", "get", "Open_vSwitch", ".", "other_config:"+KeyAwaitFlows)
	return strings.Contains(out, "true"), err
}

func (d *Daemons) vsctl(ctx context.Context, args ...string) (string, error) {
	return d.output(ctx, "ovs-vsctl", append([]string{"--no-wait", "--db=unix:" + d.DBSocket()}, args...)...)
}
