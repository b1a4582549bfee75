package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cni/confdir"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/underlay"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// modules returns the modules that the kernel does not load on first use, or not on first
// use from a container.
func (o Options) modules() []string {
	all := []string{"nf_conntrack", "nf_tables"}
	if strings.HasPrefix(o.Backend, "iptables") {
		all = append(all, "ip_tables", "ip6_tables", "ip_set", "xt_set")
	}
	if o.PolicyOnly {
		return append(all, "br_netfilter")
	}
	if o.Datapath != ovsdb.DatapathNetdev {
		all = append(all, "openvswitch")
	}
	if o.Datapath != ovsdb.DatapathSystem {
		all = append(all, "tun")
	}
	if o.WireGuardPort != 0 {
		all = append(all, "wireguard")
	}
	return all
}

// LoadModules makes the kernel load modules. A failure is only noted: a module may be built
// in, and an old kernel lacks some. The checks find missing features.
func (o Options) LoadModules(ctx context.Context, report func(Finding)) {
	var failed []string
	for _, name := range o.modules() {
		if err := exec.CommandContext(ctx, "modprobe", "--quiet", name).Run(); err != nil {
			failed = append(failed, name)
		}
	}
	if len(failed) > 0 {
		report(Finding{Good, "kernel modules", "not loaded (built in, or not available): " + strings.Join(failed, ", ")})
		return
	}
	report(Finding{Good, "kernel modules", "loaded: " + strings.Join(o.modules(), ", ")})
}

// check checks the agent's requirements on the node. It returns an error if a check that blocks found
// something missing: the agent could not work at all. All other problems the agent reports too, and an upgrade
// must not leave a node without an agent because of them.
func (o Options) check(ctx context.Context, report func(Finding)) error {
	const blocks = true
	var missing []string
	checks := []struct {
		what   string
		check  func(context.Context) (Level, string)
		blocks bool
	}{
		{"backend " + o.Backend, o.backend, blocks},
		{"datapath " + o.Datapath, o.datapath, blocks},
		{"kernel settings", o.settings, blocks},
		{"connection tracking", o.connections, !blocks},
		{"connection time-outs", o.timeouts, !blocks},
		{"Service proxy", o.serviceProxy, !blocks},
		{"other Open vSwitch", o.otherSwitch, !blocks},
		{"tunnel", o.tunnelPort, !blocks},
		{"encryption", o.encryption, !blocks},
		{"snat", o.snat, !blocks},
		{"network configurations", o.others, blocks},
	}
	ofSwitch := []string{"datapath " + o.Datapath, "kernel settings", "other Open vSwitch", "tunnel", "encryption", "snat"}
	for _, c := range checks {
		if o.PolicyOnly && slices.Contains(ofSwitch, c.what) {
			continue
		}
		level, detail := c.check(ctx)
		report(Finding{level, c.what, detail})
		if level == Missing && c.blocks {
			missing = append(missing, c.what+": "+detail)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("felixlike cannot work on this node: %s", strings.Join(missing, "; "))
	}
	return nil
}

// backend tries the configured backend.
func (o Options) backend(ctx context.Context) (Level, string) {
	if err := o.Try(ctx); err != nil {
		return Missing, err.Error()
	}
	return Good, "one object of each kind was programmed in a separate network namespace"
}

// tunDevice makes the ports of a userspace datapath.
const tunDevice = "/dev/net/tun"

func (o Options) datapath(context.Context) (Level, string) {
	ask := o.Kernel
	if ask == nil {
		ask = underlay.KernelDatapath
	}
	switch o.InUse {
	case ovsdb.DatapathSystem:
		if err := ask(); err != nil {
			return Missing, fmt.Sprintf("the agent uses the kernel's datapath, but %v: install it, or set datapath to auto", err)
		}
		return Good, "the agent uses the kernel's"
	case ovsdb.DatapathNetdev:
		return Noted, "the agent uses the userspace datapath, which is several times slower than the kernel's"
	}
	kernel := errors.New("the setting datapath is netdev")
	if o.Datapath != ovsdb.DatapathNetdev {
		kernel = ask()
	}
	switch {
	case kernel == nil:
		return Good, "the kernel's module openvswitch answers"
	case o.Datapath == ovsdb.DatapathSystem:
		return Missing, fmt.Sprintf("%v: install it, or set datapath to auto", kernel)
	}
	tun, err := os.OpenFile(tunDevice, os.O_RDWR, 0)
	if err != nil {
		return Missing, fmt.Sprintf("in userspace (%v), which needs %s: %v", kernel, tunDevice, err)
	}
	_ = tun.Close()
	return Noted, fmt.Sprintf("in userspace, which is several times slower than in the kernel: %v", kernel)
}

func (o Options) settings(context.Context) (Level, string) {
	const forwarding, filter = "net/ipv4/ip_forward", "net/ipv4/conf/all/rp_filter"
	value, err := sysctl.Read(forwarding)
	if err == nil {
		err = sysctl.Write(forwarding, value) // changes nothing; fails if the agent may not write it
	}
	if err != nil {
		return Missing, err.Error()
	}
	if _, err := sysctl.Read("net/ipv6/conf/all/forwarding"); err != nil {
		return Noted, "this kernel has no IPv6"
	}
	if value, err := sysctl.Read(filter); err == nil && value == "1" {
		return Noted, "rp_filter of all interfaces is 1 (strict); the agent sets it to 2 (loose) where pods' packets come in"
	}
	return Good, "can be set"
}

// nearlyFull is the share of a table of connections, in percent, from which on it is named. The alert
// FelixlikeConntrackNearlyFull has the same.
const nearlyFull = 85

// connections checks the tables of connections. A full one takes no new connections, of pods or of the node.
func (o Options) connections(ctx context.Context) (Level, string) {
	read := o.Connections
	if read == nil {
		read = o.tables
	}
	tables := read(ctx)
	var used []string
	for _, t := range tables {
		text := fmt.Sprintf("%s has %d of %d entries", t.Name, t.Entries, t.Limit)
		switch {
		case t.Entries >= t.Limit:
			return Missing, text + ": it is full, and new connections are dropped; " + t.Remedy
		case t.Entries*100 >= t.Limit*nearlyFull:
			return Noted, text + ": above the limit new connections are dropped; " + t.Remedy
		}
		used = append(used, text)
	}
	if len(tables) == 0 {
		return Noted, "not checked: the kernel does not track connections in this network namespace yet"
	}
	return Good, strings.Join(used, "; ")
}

// ConnectionTable is a table of connections with a limit.
type ConnectionTable struct {
	Name           string
	Entries, Limit uint64
	// Remedy is what an operator can do about a full table.
	Remedy string
}

// tables reads the node's tables, but for those that do not answer.
func (o Options) tables(ctx context.Context) []ConnectionTable {
	var all []ConnectionTable
	if entries, limit, err := conntrack.Entries(); err == nil {
		all = append(all, ConnectionTable{"the kernel's table", entries, limit, "raise net.netfilter.nf_conntrack_max, or look for a pod with very many connections"})
	}
	if o.InUse != ovsdb.DatapathNetdev {
		return all
	}
	daemon := vswitchd.New(o.OVSRunDir, o.InUse)
	entries, err := daemon.Connections(ctx)
	if err != nil {
		return all
	}
	if limit, err := daemon.MostConnections(ctx); err == nil {
		all = append(all, ConnectionTable{"the switch's table", entries, limit, "raise it with ovs-appctl dpctl/ct-set-maxconns, or look for a pod with very many connections"})
	}
	return all
}

// others looks for configurations of other CNIs. The runtime takes those with names before
// ours. Those with names after ours may still have pods on the node.
func (o Options) others(context.Context) (Level, string) {
	if o.ConfDir == "" {
		return Noted, "not checked: the directory is not mounted here"
	}
	own := filepath.Base(o.Conflist)
	files, err := confdir.Read(o.ConfDir, own)
	if err != nil {
		return Missing, err.Error()
	}
	if o.PolicyOnly && len(files.Before) == 0 {
		if len(files.After) == 0 {
			return Missing, "another CNI has none here, but trafficMode networkPolicyOnly needs it: install that CNI first"
		}
		return Good, "felixlike-cni follows the plugins of " + files.After[0]
	}
	if len(files.Before) > 0 {
		return Noted, fmt.Sprintf("%s comes before %s, so runtimes use it instead: remove the other CNI, or set exclusive", files.Before[0], own)
	}
	if len(files.After) > 0 {
		return Noted, fmt.Sprintf("another CNI is also installed (%s): new pods get felixlike's network; pods that the other CNI attached "+
			"keep its network, and no policy of felixlike applies to them until they are created again", strings.Join(files.After, ", "))
	}
	return Good, own + " is the first one"
}
