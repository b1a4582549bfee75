package ovsdaemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

const (
	// KeyAwaitFlows, in other_config of the root row, has an ovs-vswitchd that starts
	// keep the cached flows of the kernel's datapath until the key is removed.
	KeyAwaitFlows = "flow-restore-wait"
	// MarkAwaitsAgent, in external_ids of the root row, says that KeyAwaitFlows is there
	// for the agent to remove: whoever starts ovs-vswitchd on this database sets it.
	MarkAwaitsAgent = "felixlike-awaits-agent"
)

// setAwaitFlows says in the database, before ovs-vswitchd starts, whether it keeps the
// cached flows of the kernel's datapath until the agent has programmed it, and returns
// that. Without that it removes them when it starts, and no pod of the node is reached
// until then. It does so where all bridges are of the kernel's datapath: the userspace
// one has no cached flows at a start.
func (d *Daemons) setAwaitFlows(ctx context.Context) (bool, error) {
	if d.db.pid() == 0 {
		return false, errors.New("ovs-vswitchd: not before ovsdb-server runs")
	}
	await := false
	if d.opts.Kernel {
		out, err := d.vsctl(ctx, "--data=bare", "--format=csv", "--no-headings", "--columns=datapath_type", "list", "Bridge")
		if err != nil {
			return false, fmt.Errorf("datapaths of the bridges: %w", err)
		}
		await = allOfKernel(out)
	}
	change := []string{"remove", "Open_vSwitch", ".", "other_config", KeyAwaitFlows}
	if await {
		change = []string{"set", "Open_vSwitch", ".", "other_config:" + KeyAwaitFlows + "=true", "external_ids:" + MarkAwaitsAgent + "=true"}
	}
	if _, err := d.vsctl(ctx, change...); err != nil {
		return false, fmt.Errorf("%s: %w", KeyAwaitFlows, err)
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

// allOfKernel reports whether there are bridges and all have the kernel's datapath: a
// list has one type a line, and an empty type is the default.
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
