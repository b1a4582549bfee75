// Package supervisor runs a node's Open vSwitch where the agent manages it: both daemons as children,
// restarted when they end, with their database in a directory that outlives them.
//
// Ending it interrupts no connection. On the userspace datapath only ovs-vswitchd knows the allowed
// connections: the supervisor first carries them to the kernel, where the agent finds them again. The uplink
// gets the node's addresses back, also while ovs-vswitchd stays away.
//
// It owns the daemons, and knows no more of policy than that a connection was
// allowed. It is tested with real daemons in network namespaces; test/e2e
// restarts it under traffic.
//
// # Processes
//
// "felixlike-agent ovs" runs the supervisor. Both daemons are its children. It restarts
// a daemon that ends: the first three times at once, then after 100 ms, later each time,
// at most after 1 s (10 s if the daemon does not start). It kills a daemon that hangs:
// no answer for 10 s while all threads sleep, or for a minute in which the main thread
// sleeps or spins. If that happens again soon, these times double, up to 5 minutes. A
// daemon that lacks a processor or waits for the disk is left alone.
//
// The database is kept over restarts and reboots, and with it ports and their numbers. If
// ovsdb-server cannot read it, the supervisor keeps it as conf.db.unreadable and makes an
// empty one; the agent makes the bridge again and puts the ports of pods back. Another
// ovs-vswitchd with the kernel's datapath is an error that says so. The supervisor gives
// the packet sockets of ovs-vswitchd receive buffers that hold a burst of new
// connections (WidenBuffers), and gives the thread that moves packets priority over the
// revalidators (PreferPackets). Some kernels group processes by session, and a nice
// value then counts only within the session; there the daemon's session gets priority
// too. An agent that shares the daemon's process namespace sets the same; in
// Kubernetes the supervisor does it, within a second.
//
// If the daemons of another pod serve the run directory, the supervisor waits until they have
// ended: see ovsdaemon.Keep. This happens once on each node, when pods of Open vSwitch replace a
// container of the agent's pod.
//
// # Restart on the kernel's datapath
//
// The kernel keeps cached flows when ovs-vswitchd ends, so established connections go
// on. A new ovs-vswitchd would remove them when it starts, before the agent has
// programmed it. So before every start the supervisor sets
// other_config:flow-restore-wait=true, if all bridges of the database use the kernel's
// datapath. The agent removes the key:
//
//	it starts     the kernel still uses the cached flows. ovs-vswitchd accepts OpenFlow flows, but has no
//	              revalidators and gets no packets: the kernel drops packets without a cached flow
//	the agent     programs policy, then forwarding, over a connection to this ovs-vswitchd
//	flow-restore  the stage after forwarding removes the key. ovs-vswitchd 3.1 removes all cached
//	              flows, gets packets again and starts its revalidators; the stage waits for them.
//	              This pauses established connections (0.7 s in docs/results/conformance.md)
//
// Cached flows follow the old policy, so no new policy is in force before the last step.
// Until then the pass has not ended, the agent is not ready, and status shows a problem
// of the node. During the wait the policy stage of openflow does not wait for
// revalidators (vswitchd.ErrAwaitsFlows). If a policy stage fails, the passes do not
// reach the last step: the switch keeps the old state, and status has both reasons. If a
// single object fails, the agent quarantines it, as usual. If no agent programs the
// switch, the supervisor logs "NO AGENT has programmed ovs-vswitchd" every 30 s. A
// running ovs-vswitchd never begins to wait, so the start of an agent changes nothing.
// The agent removes the key only if the supervisor set it, with the mark
// external_ids:felixlike-awaits-agent. Shown by test/e2e: TestRestartKeepsConnections;
// felixlike and ovsfwd/vswitchd: TestSwitchThatAwaitsFlows; ovsfwd/ovsdaemon:
// TestAwaitFlows, TestAgentThatNeverComes.
//
// # Restart on the userspace datapath
//
// Only the switch has the connections, and the bridge br-phy serves the node's
// addresses. The uplink keeps them too, without routes. The local port of br-phy is a
// tap device that outlives ovs-vswitchd however that ends, "kill -9" included, with
// addresses, routes and a note of their owner. But then it has no carrier, and the node
// would be cut off:
//
//	SIGTERM       allowed connections are carried to the kernel; if policy is in the switch, the
//	              bridge then drops everything, and connections begun meanwhile are carried too;
//	              the uplink serves the addresses again at most a second after the signal; the
//	              daemons end
//	a crash       the daemon is started again; if it stays away for 2 s, the uplink serves the
//	              addresses; if the supervisor has ended too, the agent does it after 3 s
//	it serves     the bridge serves the addresses again, with or without an agent, and never
//	              while it has no carrier
//	no flows      the agent connects and finds none of its own: under openflow connections are
//	              carried back from the kernel (felixlike/ovsrestart.go), after policy and before
//	              the flows that lead packets. Until then the bridge drops
//
// A restart costs a pause of half a second and no connection. A crash of ovs-vswitchd
// under openflow costs the connections on which only the server speaks next. Shown by
// test/e2e: TestRollout, TestSwitchAway, TestSwitchCrash; here:
// TestAddressesAreNeverLost.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/carry"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/underlay"
	"github.com/felixlike/felixlike/ovsfwd/uplink"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// Options configure the Open vSwitch to run.
type Options struct {
	// RunDir holds the sockets, DatabaseDir the database.
	RunDir, DatabaseDir string
	// Bridge is the integration bridge, Management its OpenFlow socket, Gateway
	// the port to the host.
	Bridge, Management, Gateway string
	// Userspace leaves the kernel's datapath alone.
	Userspace bool
	// Output is where the daemons' logs go; nil means to files in RunDir.
	Output *os.File
	Log    *slog.Logger
}

// Run runs the daemons until ctx ends.
func Run(ctx context.Context, o Options) error {
	s := &supervisor{o: o, log: o.Log.With("component", "ovs")}
	kernel, err := s.kernel()
	if err != nil {
		return err
	}
	if !kernel {
		end := newBursts(o.RunDir, s.log).begin(ctx)
		defer end()
	}
	daemons := ovsdaemon.Options{Dir: o.RunDir, DatabaseDir: o.DatabaseDir, Kernel: kernel, Log: o.Output}
	err = ovsdaemon.Keep(ctx, daemons, ovsdaemon.Hooks{Serving: s.serving, Away: s.away, Ending: s.ending}, s.log)
	if err != nil {
		return fmt.Errorf("open vswitch: %w", err)
	}
	s.log.Info("stopped")
	return nil
}

// Check returns an error unless both daemons with the run directory answer.
func Check(ctx context.Context, runDir string) error {
	db, err := ovsdb.Open(ctx, ovsdb.Config{Socket: socket(runDir)})
	if err != nil {
		return err
	}
	db.Close()
	_, err = vswitchd.New(runDir, ovsdb.DatapathNetdev).Version(ctx)
	return err
}

func socket(runDir string) string { return runDir + "/db.sock" }

type supervisor struct {
	o   Options
	log *slog.Logger
}

// KernelDatapath is the name of the one that every ovs-vswitchd makes.
const KernelDatapath = "ovs-system"

// OwnerFile is the file in the run directory that names the owner of the kernel's
// datapath. Both are gone after a reboot.
const OwnerFile = "kernel-datapath"

// kernel reports whether to offer the kernel's datapath. Two daemons on it would remove each
// other's ports.
func (s *supervisor) kernel() (bool, error) {
	if s.o.Userspace {
		return false, nil
	}
	if err := underlay.KernelDatapath(); err != nil {
		s.log.Warn("NO KERNEL DATAPATH: only the userspace datapath works on this node", "reason", err)
		return false, nil
	}
	mark := s.o.RunDir + "/" + OwnerFile
	_, err := os.Stat(mark)
	switch _, foreign := netlink.LinkByName(KernelDatapath); {
	case err == nil:
		return true, nil
	case !errors.Is(err, os.ErrNotExist):
		return false, fmt.Errorf("find the owner of the kernel's datapath: %w", err)
	case foreign == nil:
		return false, fmt.Errorf("another ovs-vswitchd has the kernel's datapath (there is an interface %s): stop it, "+
			"or set ovsRunDir to its run directory and do not run this one, or set datapath to netdev", KernelDatapath)
	}
	if err := os.MkdirAll(s.o.RunDir, 0o755); err != nil {
		return false, fmt.Errorf("run directory: %w", err)
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return false, fmt.Errorf("record the owner of the kernel's datapath: %w", err)
	}
	return true, nil
}

// serving moves the node's addresses to the bridge again if they were there before, because
// there may be no agent to do it.
func (s *supervisor) serving(ctx context.Context) {
	name, err := uplink.StandsFor(ovsdb.PhysicalBridge)
	if err == nil && name != "" {
		err = s.moveBack(ctx, name)
	}
	if err != nil {
		s.log.Warn("the node's addresses stay on the uplink until the agent moves them", "error", err)
	}
}

func (s *supervisor) moveBack(ctx context.Context, name string) error {
	db, err := ovsdb.Open(ctx, ovsdb.Config{Socket: socket(s.o.RunDir), Bridge: s.o.Bridge})
	if err != nil {
		return err
	}
	defer db.Close()
	taken, err := db.Uplink(ctx)
	if errors.Is(err, ovsdb.ErrNoUplink) || err == nil && taken != name {
		return nil // another bridge has its name now
	}
	if err != nil {
		return err
	}
	_, err = uplink.In(s.o.RunDir).Move(name, ovsdb.PhysicalBridge, netip.Addr{})
	return err
}

// away moves the node's addresses back to the uplink.
func (s *supervisor) away() {
	moved, err := uplink.In(s.o.RunDir).Restore(ovsdb.PhysicalBridge)
	if err != nil {
		s.log.Error("cannot move the node's addresses back to the uplink", "error", err)
	}
	if moved != (uplink.Moved{}) {
		s.log.Info("the node's addresses are on the uplink", "addresses", moved.Addresses, "routes", moved.Routes, "restored", moved.Restored)
	}
}

// silence makes the bridge drop everything, if policy is in a userspace datapath. Then its
// connections do not change any more.
func (s *supervisor) silence(ctx context.Context) error {
	daemon := vswitchd.New(s.o.RunDir, ovsdb.DatapathNetdev)
	if types, err := daemon.DatapathTypes(ctx); err != nil || !slices.Contains(types, ovsdb.DatapathNetdev) {
		return err
	}
	conn, err := openflow.Dial(ctx, s.o.Management)
	if errors.Is(err, os.ErrNotExist) {
		return nil // there is no bridge
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	policy, err := conn.Dump(ctx, pipeline.PolicyOwner)
	if err != nil || len(policy) == 0 {
		return err
	}
	if err := conn.Change(ctx, pipeline.Silence()); err != nil {
		return err
	}
	return daemon.WaitRevalidators(ctx, pipeline.Touch(conn))
}

// carry copies the connections that policy in a userspace datapath allowed to the kernel.
func (s *supervisor) carry(ctx context.Context) error {
	return s.carryBy(ctx, (*carry.Carrier).ToKernel)
}

// carryBehind is carry once the switch lets no packet pass any more.
func (s *supervisor) carryBehind(ctx context.Context) error {
	return s.carryBy(ctx, (*carry.Carrier).ToKernelBehind)
}

func (s *supervisor) carryBy(ctx context.Context, toKernel func(*carry.Carrier, context.Context) (carry.Result, error)) error {
	behind, err := hostnet.ReadBehind(s.o.Gateway)
	if err != nil || len(behind.Own) == 0 {
		return err
	}
	const here, peers = "here", "peers"
	c := carry.New(carry.Options{Node: here, RunDir: s.o.RunDir, Socket: s.o.Management, DatapathType: ovsdb.DatapathNetdev})
	c.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: here, PodCIDRs: behind.Own}})
	c.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: peers, PodCIDRs: behind.Peers, Addresses: behind.PeerNodes}})
	began := time.Now()
	r, err := toKernel(c, ctx)
	if r.Allowed > 0 {
		s.log.Info("carried connections", "to", "kernel", "known", r.Allowed, "written", r.Written, "took", time.Since(began).Round(time.Millisecond))
	}
	return err
}
