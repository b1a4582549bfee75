package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/lab"
)

// row is a fault of node1, and what is promised for it.
type row struct {
	name string
	// backends are those that it concerns; all if empty.
	backends []string
	// ci are the backends that continuous integration runs it with.
	ci []string
	// do causes the fault. undo, if there is one, ends it after hold.
	do, undo func(context.Context, *cluster) error
	hold     time.Duration
	// window is the time after the fault in which packets that policy denies may pass.
	window map[string]time.Duration
	// gap bounds the time without allowed packets, and without new connections.
	gap time.Duration
	// repairs reports whether the agent has to say that it repaired a foreign change.
	repairs map[string]bool
	// says reports whether the agent has to be not ready, or to name a problem, at some time.
	says bool
	// known says, by backend, why the row fails today. Only faults that begin with expect are known.
	known  map[string]string
	expect string
}

func backends() []string {
	return append(append([]string{config.NFTables}, iptables()...), config.OpenFlow)
}

func iptables() []string { return []string{config.IPTablesLegacy, config.IPTablesNFT} }

func in(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return set
}

// everywhere gives all backends the same text.
func everywhere(text string) map[string]string {
	texts := map[string]string{}
	for _, b := range backends() {
		texts[b] = text
	}
	return texts
}

// Bounds of the time without allowed packets.
const (
	// none is for faults that stop no packet: what an idle machine loses by itself.
	none = 500 * time.Millisecond
	// repair is for foreign changes that the agent is notified of, or looks for.
	repair = time.Second
	// restart is for a restart of Open vSwitch on the userspace datapath.
	restart = 6 * time.Second
	// rebuild is for a bridge or a port that is made again.
	rebuild = 15 * time.Second
	// stopTime is how long a process is stopped.
	stopTime = 3 * time.Second
)

// lateData is why denied TCP can go on after two faults at once.
const lateData = "a server may send again what a denied client has not acknowledged: conntrack then takes that packet for the first of a connection of the server"

// rows is the table.
func rows() []row {
	flushed := map[string]time.Duration{config.NFTables: 100 * time.Millisecond, config.IPTablesNFT: time.Second}
	emptied := map[string]time.Duration{config.IPTablesLegacy: time.Second, config.IPTablesNFT: time.Second}
	every := in(backends()...)
	return []row{
		{
			name: "kill -9 agent", gap: none, ci: []string{config.IPTablesNFT}, hold: time.Second,
			do:   func(_ context.Context, c *cluster) error { return c.node.KillAgent() },
			undo: func(_ context.Context, c *cluster) error { return c.node.StartAgent() },
		},
		{
			name: "kill -9 ovs-vswitchd", gap: restart, ci: []string{config.OpenFlow},
			do: signal("ovs-vswitchd", syscall.SIGKILL),
		},
		{
			name: "kill -9 ovsdb-server", gap: restart, ci: []string{config.NFTables, config.OpenFlow},
			do: signal("ovsdb-server", syscall.SIGKILL),
		},
		{
			name: "SIGSTOP 3 s agent", gap: none, ci: []string{config.IPTablesLegacy}, hold: stopTime,
			do:   signalAgent(syscall.SIGSTOP),
			undo: signalAgent(syscall.SIGCONT),
		},
		{
			name: "SIGSTOP 3 s ovs-vswitchd", gap: stopTime + restart, ci: []string{config.OpenFlow}, hold: stopTime,
			do:   signal("ovs-vswitchd", syscall.SIGSTOP),
			undo: signal("ovs-vswitchd", syscall.SIGCONT),
		},
		{
			name: "SIGSTOP 3 s ovsdb-server", gap: stopTime + restart, ci: []string{config.NFTables}, hold: stopTime,
			do:   signal("ovsdb-server", syscall.SIGSTOP),
			undo: signal("ovsdb-server", syscall.SIGCONT),
		},
		{
			name: "kill -9 supervisor", gap: time.Second + restart, hold: time.Second,
			do:   func(_ context.Context, c *cluster) error { return c.killContainer() },
			undo: func(_ context.Context, c *cluster) error { return c.ovs.Start() },
		},
		{
			name: "SIGSTOP 3 s supervisor", gap: none, hold: stopTime,
			do:   func(_ context.Context, c *cluster) error { return c.ovs.Signal(syscall.SIGSTOP) },
			undo: func(_ context.Context, c *cluster) error { return c.ovs.Signal(syscall.SIGCONT) },
		},
		{
			name: "kill -9 agent, ten times", gap: none,
			do: func(ctx context.Context, c *cluster) error { return c.killAgents(ctx, 10) },
		},
		{
			name: "kill -9 ovs-vswitchd, five times", gap: restart,
			do: func(ctx context.Context, c *cluster) error { return c.killSwitch(ctx, 5) },
		},
		{
			name: "no descriptors for 5 s", gap: none, hold: silentFor,
			do:   func(_ context.Context, c *cluster) error { return c.limitDescriptors(true) },
			undo: func(_ context.Context, c *cluster) error { return c.limitDescriptors(false) },
		},
		{
			name: "no more memory for 5 s", gap: none, hold: silentFor,
			do:   func(_ context.Context, c *cluster) error { return c.takeMemory() },
			undo: func(_ context.Context, c *cluster) error { return c.giveMemory() },
		},
		{
			name: "state directory full", gap: none, says: true, hold: silentFor,
			do:   func(_ context.Context, c *cluster) error { return c.fillState() },
			undo: func(_ context.Context, c *cluster) error { return c.emptyState() },
		},
		{
			name: "route deleted, notifications lost", gap: stopTime, repairs: every,
			do: func(_ context.Context, c *cluster) error { return c.loseNotifications() },
		},
		{
			name: "nft flush ruleset", gap: repair, ci: []string{config.NFTables, config.IPTablesNFT},
			window: flushed, repairs: in(config.NFTables, config.IPTablesNFT, config.OpenFlow),
			do: shell("nft flush ruleset"),
		},
		{
			name: "iptables -F and -X", backends: iptables(), gap: repair, ci: iptables(),
			window: emptied, repairs: in(iptables()...),
			do: func(ctx context.Context, c *cluster) error { return c.shell(emptyIPTables(c.backend)) },
		},
		{
			name: "ipset flush", backends: iptables(), gap: 2 * time.Second, ci: []string{config.IPTablesNFT},
			repairs: in(iptables()...),
			do:      shell("ipset flush"),
		},
		{
			name: "conntrack -F", gap: none, ci: []string{config.IPTablesLegacy},
			do: shell("conntrack -F; conntrack -F -f ipv6; ovs-appctl -t $OVS_RUNDIR/ovs-vswitchd.*.ctl dpctl/flush-conntrack"),
		},
		{
			name: "ovs-ofctl del-flows", gap: repair, repairs: every, ci: []string{config.NFTables},
			do: shell("ovs-ofctl -O OpenFlow15 del-flows br-int"),
		},
		{
			name: "ovs-vsctl del-br", gap: rebuild,
			do: shell(vsctl + "del-br br-int"),
		},
		{
			name: "ovs-vsctl del-port", gap: rebuild,
			do: onPort("server", vsctl+"del-port br-int PORT"),
		},
		{
			name: "br-phy deleted", gap: rebuild,
			do: shell(vsctl + "del-br br-phy"),
		},
		{
			name: "br-phy down", gap: rebuild,
			do: shell("ip link set br-phy down"),
		},
		{
			name: "gateway link down", gap: repair, repairs: every,
			do: shell("ip link set flx-gw0 down"),
		},
		{
			name: "gateway address deleted", gap: repair, repairs: every,
			do: shell("ip -4 address flush dev flx-gw0; ip -6 address flush dev flx-gw0 scope global"),
		},
		{
			name: "route to the peer deleted", gap: repair, repairs: every,
			do: shell("ip route del $(ip route show proto 208 table main | grep via | head -n 1 | cut -d ' ' -f 1)"),
		},
		{
			name: "policy rule deleted", backends: append(iptables(), config.NFTables), gap: repair, repairs: every,
			do: shell("ip rule del priority 20800"),
		},
		{
			name: "ip_forward=0", gap: repair, repairs: every,
			do: shell("sysctl -qw net.ipv4.ip_forward=0"),
		},
		{
			name: "iptables -P FORWARD DROP", gap: stopTime, hold: silentFor,
			do:   shell(forwardPolicy("DROP")),
			undo: shell(forwardPolicy("ACCEPT")),
		},
		{
			name: "rule of nft in the tables of iptables", gap: none, backends: []string{config.IPTablesNFT}, hold: silentFor,
			do:   shell("for f in ip ip6; do nft add chain $f mangle theirs; nft add rule $f mangle theirs meta mark set numgen inc mod 2; done"),
			undo: shell("for f in ip ip6; do nft flush chain $f mangle theirs; nft delete chain $f mangle theirs; done"),
		},
		{
			name: "prefix route on the uplink", gap: repair,
			do: shell("ip -4 route add 192.168.50.0/24 dev eth0 proto kernel metric 102; ip -6 route add fd00:10::192.168.50.0/120 dev eth0 proto kernel metric 102"),
		},
		{
			name: "second address of the uplink", gap: repair, hold: silentFor,
			do:   shell("ip -4 address add 192.168.50.77/24 dev eth0; ip -6 address add fd00:10::192.168.50.77/120 dev eth0 nodad"),
			undo: shell("ip -4 address del 192.168.50.77/24 dev eth0; ip -6 address del fd00:10::192.168.50.77/120 dev eth0"),
		},
		{
			name: "router advertisement", gap: none, hold: silentFor,
			do:   func(_ context.Context, c *cluster) error { return c.advertise() },
			undo: shell("ip -6 route flush proto ra"),
		},
		{
			name: "node that claims the prefixes of another", gap: none, says: true, hold: silentFor,
			do:   lie("192.168.50.99", "fd00:10::c0a8:3263"),
			undo: func(_ context.Context, c *cluster) error { return os.Remove(c.liar()) },
		},
		{
			// Two claims identify neither node: the other one is cut off until the lie ends.
			name: "node that claims the address of another", gap: silentFor + stopTime, says: true, hold: silentFor,
			do:   lie("192.168.50.12", "fd00:10::c0a8:320c"),
			undo: func(_ context.Context, c *cluster) error { return os.Remove(c.liar()) },
		},
		{
			name: "veth deleted", gap: none, says: true, hold: silentFor + 2*time.Second,
			do:   onPort("bystander", "ip link del PORT"),
			undo: func(_ context.Context, c *cluster) error { return c.remake("bystander") },
		},
		{
			name: "second agent", gap: none, hold: 10 * time.Second,
			do:   func(_ context.Context, c *cluster) error { return c.startSecond() },
			undo: func(_ context.Context, c *cluster) error { return c.endSecond() },
		},
		{
			name: "xtables lock held 3 s", backends: []string{config.IPTablesLegacy}, gap: none,
			do: shell("flock $XTABLES_LOCKFILE sleep 3"),
		},
		{
			name: "CPU pressure for 5 s", gap: none,
			do: shell("for i in 1 2 3 4; do timeout 5 sh -c 'while :; do :; done' & done; wait"),
		},
		{
			name: "manifest emptied", gap: none, says: true, hold: silentFor,
			do:   func(_ context.Context, c *cluster) error { return os.Truncate(c.manifest(), 0) },
			undo: func(_ context.Context, c *cluster) error { return c.restoreManifest() },
		},
		{
			name: "manifest unreadable", gap: none, says: true, hold: silentFor,
			do:   func(_ context.Context, c *cluster) error { return c.hideManifest() },
			undo: func(_ context.Context, c *cluster) error { return c.restoreManifest() },
		},
		{
			name: "manifest unreadable, agent restarted", gap: none, says: true, hold: silentFor,
			do: func(_ context.Context, c *cluster) error {
				return errors.Join(c.hideManifest(), c.node.KillAgent(), c.node.StartAgent())
			},
			undo: func(_ context.Context, c *cluster) error { return c.restoreManifest() },
		},
		{
			name: "backend changed", gap: 2 * time.Second,
			do:   func(ctx context.Context, c *cluster) error { return c.changeBackend(ctx, other(c.backend)) },
			undo: func(ctx context.Context, c *cluster) error { return c.changeBackend(ctx, c.backend) },
		},
		{
			name: "conf.db corrupt", gap: rebuild,
			do: func(ctx context.Context, c *cluster) error {
				if err := os.WriteFile(c.node.OVSDir()+"/conf.db", []byte("no database\n"), 0o600); err != nil {
					return err
				}
				return signal("ovsdb-server", syscall.SIGKILL)(ctx, c)
			},
		},
		{
			name: "conf.db on a full disk", gap: restart, hold: silentFor,
			do:   func(ctx context.Context, c *cluster) error { return c.fillDatabase(ctx) },
			undo: func(ctx context.Context, c *cluster) error { return c.emptyDatabase(ctx) },
		},
		// Last, since flows that got in stay.
		{
			name: "nft flush ruleset, then conntrack -F", backends: []string{config.NFTables, config.IPTablesNFT}, gap: repair,
			window: flushed, repairs: every,
			known: map[string]string{config.NFTables: lateData, config.IPTablesNFT: lateData}, expect: outsideFault,
			do: shell("nft flush ruleset; conntrack -F; conntrack -F -f ipv6"),
		},
	}
}

// forwardPolicy sets the policy of FORWARD in both variants of iptables, and both families.
func forwardPolicy(policy string) string {
	return "for v in iptables-legacy ip6tables-legacy iptables-nft ip6tables-nft; do $v -w -P FORWARD " + policy + "; done"
}

// shell runs a script on the node.
func shell(script string) func(context.Context, *cluster) error {
	return func(_ context.Context, c *cluster) error { return c.shell(script) }
}

// vsctl asks the node's database.
const vsctl = "ovs-vsctl --timeout=10 --db=unix:$OVS_RUNDIR/db.sock "

// onPort runs a script in which PORT is the interface of a pod on the node.
func onPort(pod, script string) func(context.Context, *cluster) error {
	return func(ctx context.Context, c *cluster) error {
		status, err := c.node.Status(ctx)
		if err != nil {
			return err
		}
		for _, e := range status.Endpoints {
			if e.Name == pod && e.Interface != "" {
				return c.shell(strings.ReplaceAll(script, "PORT", e.Interface))
			}
		}
		return fmt.Errorf("x/%s has no interface", pod)
	}
}

// other returns a backend that judges at another place.
func other(backend string) string {
	if backend == config.OpenFlow {
		return config.NFTables
	}
	return config.OpenFlow
}

// signal sends a signal to a daemon of Open vSwitch.
func signal(daemon string, s syscall.Signal) func(context.Context, *cluster) error {
	return func(_ context.Context, c *cluster) error {
		pid, err := c.ovs.PID(daemon)
		if err != nil {
			return err
		}
		return syscall.Kill(pid, s)
	}
}

func signalAgent(s syscall.Signal) func(context.Context, *cluster) error {
	return func(_ context.Context, c *cluster) error {
		pid := c.node.AgentPID()
		if pid <= 0 {
			return errors.New("no agent runs") // kill(0) would signal the test itself
		}
		return syscall.Kill(pid, s)
	}
}

// emptyIPTables empties the tables with policy, and deletes the chains, in both families. The
// agent may have filled a chain again before it is deleted.
func emptyIPTables(backend string) string {
	var commands []string
	for _, tool := range []string{backend, "ip6" + strings.TrimPrefix(backend, "ip")} {
		for _, table := range []string{"mangle", "raw", "filter"} {
			commands = append(commands, fmt.Sprintf("%[1]s -w -t %[2]s -F; %[1]s -w -t %[2]s -X || true", tool, table))
		}
	}
	return strings.Join(commands, "; ")
}

// chosen returns the rows to run with a backend.
func chosen(backend string) ([]row, error) {
	name, err := regexp.Compile(*fault)
	if err != nil {
		return nil, err
	}
	var some []row
	for _, r := range rows() {
		concerns := len(r.backends) == 0 || contains(r.backends, backend)
		if *all && concerns && name.MatchString(r.name) || !*all && contains(r.ci, backend) {
			some = append(some, r)
		}
	}
	return some, nil
}

func contains(names []string, name string) bool { return in(names...)[name] }

// TestKnownHidesOnlyItself: a row that is known to fail may fail in no other way, and has to count.
func TestKnownHidesOnlyItself(t *testing.T) {
	of := row{known: everywhere("why"), expect: outsideFault}
	leak := outsideFault + " of 0s: 2"
	for _, c := range []struct {
		result result
		want   string
	}{
		{result{Faults: []string{leak}}, "known"},
		{result{Faults: []string{leak, silentFault}}, "FAILED"},
		{result{Faults: []string{silentFault}}, "FAILED"},
		{result{Faults: []string{leak}, NotCounted: true}, "not counted"},
		{result{Faults: []string{"not counted: no attempt of TCP"}}, "FAILED"},
	} {
		r := c.result
		r.Backend = config.NFTables
		r.excuse(of)
		if got := r.verdict(); got != c.want {
			t.Errorf("%q is %q, want %q", r.Faults, got, c.want)
		}
	}
}

// TestNoSignalWithoutAnAgent: kill(0) would reach the test itself.
func TestNoSignalWithoutAnAgent(t *testing.T) {
	if err := signalAgent(0)(t.Context(), &cluster{node: &lab.Node{}}); err == nil {
		t.Error("a signal was sent, and no agent runs")
	}
}

// TestPortRangesAreApart: a start of the denied clients takes no port of the starts before.
func TestPortRangesAreApart(t *testing.T) {
	before := controlPort
	for start := range portRanges {
		first, last := portRange(start)
		if first <= before || last <= first || last > 65535 {
			t.Errorf("start %d takes ports from %d to %d, the one before up to %d", start, first, last, before)
		}
		before = last
	}
}
