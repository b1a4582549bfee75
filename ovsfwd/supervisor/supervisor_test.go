package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/uplink"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// node is a namespace with a supervised Open vSwitch and an uplink to a second namespace.
type node struct {
	*testing.T
	ns   *namespace.Namespace
	far  *namespace.Namespace
	dir  string
	stop func()
	done chan error
}

func newNode(t *testing.T) *node {
	t.Helper()
	if err := ovsdaemon.Available(); err != nil {
		t.Skip(err)
	}
	if _, err := exec.LookPath("ping"); err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, ns: space(t, "node"), far: space(t, "far")}
	var err error
	n.dir, err = ovsdaemon.TempDir()
	n.must(err)
	t.Cleanup(func() { os.RemoveAll(n.dir) })
	n.ip("link add up0 type veth peer name far0 netns " + n.far.Name())
	n.ip("link set up0 up")
	n.ip("addr add 192.168.77.100/24 dev up0")
	n.ip("addr add fd77::100/64 dev up0 nodad")
	n.ip("route add default via 192.168.77.1")
	run(t, "ip", strings.Fields("-n "+n.far.Name()+" addr add 192.168.77.1/24 dev far0")...)
	run(t, "ip", strings.Fields("-n "+n.far.Name()+" link set far0 up")...)
	return n
}

func space(t *testing.T, name string) *namespace.Namespace {
	t.Helper()
	ns, err := namespace.Create(fmt.Sprintf("flx-sup-%d-%s", os.Getpid(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ns.Close()
		if err := namespace.Delete(ns.Name()); err != nil {
			t.Error(err)
		}
	})
	return ns
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) ip(line string) string {
	n.Helper()
	return run(n.T, "ip", append([]string{"-n", n.ns.Name()}, strings.Fields(line)...)...)
}

func (n *node) runDir() string { return filepath.Join(n.dir, "run") }

// start runs a supervisor until stop is called.
func (n *node) start() {
	n.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	n.done = done
	n.stop = func() { cancel(); <-done; n.stop = func() {} }
	n.Cleanup(func() { n.stop() })
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	n.must(err)
	thread, err := namespace.Open(n.ns.Name())
	n.must(err)
	go func() {
		defer log.Close()
		defer thread.Close()
		done <- thread.Do(func() error {
			return Run(ctx, Options{
				RunDir: n.runDir(), DatabaseDir: filepath.Join(n.dir, "db"), Bridge: "br-int", Management: filepath.Join(n.runDir(), "br-int.mgmt"),
				Gateway: "flx-gw0", Userspace: true, Output: log, Log: slog.New(slog.NewTextHandler(log, nil)),
			})
		})
	}()
	n.eventually("both daemons answer", func() bool {
		ctx, cancel := context.WithTimeout(n.Context(), time.Second)
		defer cancel()
		return Check(ctx, n.runDir()) == nil
	})
}

// takeUplink does the agent's part: bridges, and the uplink's addresses to one of them.
func (n *node) takeUplink() {
	n.Helper()
	err := n.ns.Do(func() error {
		mac, err := uplink.MAC("up0")
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(n.Context(), 20*time.Second)
		defer cancel()
		db, err := ovsdb.Open(ctx, ovsdb.Config{
			Socket: socket(n.runDir()), Bridge: "br-int", DatapathType: ovsdb.DatapathNetdev, TunnelType: "geneve", Gateway: "flx-gw0", Tunnel: "flx-tun0",
			GatewayMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, LocalIP: netip.MustParseAddr("192.168.77.100"), Uplink: "up0", UplinkMAC: mac, NodeName: "n",
		})
		if err != nil {
			return err
		}
		defer db.Close()
		if err := db.EnsureBridge(ctx); err != nil {
			return err
		}
		_, err = uplink.In(n.runDir()).Move("up0", ovsdb.PhysicalBridge, netip.Addr{})
		return err
	})
	n.must(err)
}

// eventually waits until ok. A failure prints addresses and log.
func (n *node) eventually(what string, ok func() bool) {
	n.Helper()
	eventually.True(n, what, ok, func() string {
		log, _ := os.ReadFile(filepath.Join(n.dir, "log"))
		return fmt.Sprintf("%s\n%s", n.ip("addr"), log)
	})
}

// on reports whether an interface has all addresses and the default route.
func (n *node) on(name string) bool {
	n.Helper()
	addrs := n.ip("addr show dev " + name)
	return strings.Contains(addrs, "192.168.77.100/24") && strings.Contains(addrs, "fd77::100/64") &&
		strings.Contains(n.ip("route show default"), "dev "+name)
}

// reached reports whether the node answers from afar.
func (n *node) reached() bool {
	return exec.Command("ip", "netns", "exec", n.far.Name(), "ping", "-c", "1", "-W", "1", "192.168.77.100").Run() == nil
}

// kill kills a daemon.
func (n *node) kill(name string) {
	n.Helper()
	n.signal(name, syscall.SIGKILL)
}

// signal signals a daemon by its pid file.
func (n *node) signal(name string, sig syscall.Signal) {
	n.Helper()
	pid := n.pid(name)
	if pid == 0 {
		n.Fatalf("%s does not run", name)
	}
	n.must(syscall.Kill(pid, sig))
}

// pid returns a daemon's process id, or 0 while it has none: a daemon that ends removes
// its file, and one that starts has not written it yet.
func (n *node) pid(name string) int {
	n.Helper()
	text, err := os.ReadFile(filepath.Join(n.runDir(), name+".pid"))
	if err == nil && len(text) > 0 {
		var pid int
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		n.must(err)
		return pid
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.Fatal(err)
	}
	return 0
}

// TestAddressesAreNeverLost ends the daemons in every way there is: at each end
// the node has its addresses, and is reached by them.
func TestAddressesAreNeverLost(t *testing.T) {
	n := newNode(t)
	n.start()
	n.takeUplink()
	n.eventually("the node is reached by the bridge", func() bool { return n.on(ovsdb.PhysicalBridge) && n.reached() })

	for _, name := range []string{"ovs-vswitchd", "ovsdb-server"} {
		n.kill(name)
		n.eventually("the node is reached after "+name+" was killed", func() bool { return n.on(ovsdb.PhysicalBridge) && n.reached() })
	}

	n.stop()
	if !n.on("up0") || !n.reached() {
		t.Errorf("the addresses are not on the uplink, or do not serve, after an end in good order:\n%s", n.ip("addr"))
	}
	n.start()
	n.eventually("the bridge has the addresses again, without an agent", func() bool { return n.on(ovsdb.PhysicalBridge) && n.reached() })

	// A switch that does not come back.
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "ovs-vswitchd"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", broken+":"+path)
	n.kill("ovs-vswitchd")
	n.eventually("the uplink serves while the switch does not", func() bool { return n.on("up0") && n.reached() })
	t.Setenv("PATH", path)
	n.eventually("the bridge has the addresses when the switch is back", func() bool { return n.on(ovsdb.PhysicalBridge) && n.reached() })
}

// TestAddressesComeBeforeConnections ends the supervisor while the switch says nothing
// of its connections: the node is reached all the same, long before they are given up.
func TestAddressesComeBeforeConnections(t *testing.T) {
	n := newNode(t)
	n.start()
	n.takeUplink()
	n.eventually("the node is reached by the bridge", func() bool { return n.on(ovsdb.PhysicalBridge) && n.reached() })
	n.signal("ovs-vswitchd", syscall.SIGSTOP)
	watch := stopwatch.Start(t)
	ended := make(chan struct{})
	go func() { n.stop(); close(ended) }()
	n.eventually("the uplink serves", func() bool { return n.on("up0") && n.reached() })
	if took := watch.Lap(t); took.Net() > endingTimeout/2 {
		t.Errorf("the node was cut off for %s", took)
	}
	n.signal("ovs-vswitchd", syscall.SIGCONT)
	<-ended
	if !n.on("up0") || !n.reached() {
		t.Errorf("the uplink does not serve after the end:\n%s", n.ip("addr"))
	}
}

// TestBurstsAreTaken: without an agent, each packet socket of ovs-vswitchd gets a receive
// buffer for bursts, and its main thread priority; those of a restarted daemon too.
func TestBurstsAreTaken(t *testing.T) {
	if _, err := exec.LookPath("ss"); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.start()
	n.takeUplink()
	check := func(when string) {
		t.Helper()
		n.eventually("buffers for bursts "+when, func() bool {
			sockets := run(t, "ip", "netns", "exec", n.ns.Name(), "ss", "--packet", "--memory", "--no-header", "--numeric", "--oneline")
			return strings.Contains(sockets, "rb4194304") && strings.Count(sockets, "rb4194304") == strings.Count(sockets, "skmem:")
		})
		n.eventually("priority "+when, func() bool {
			// The system call returns 20 less the nice value.
			pid := n.pid("ovs-vswitchd")
			priority, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
			return pid != 0 && err == nil && priority == 30
		})
	}
	check("of the uplink")
	killed := n.pid("ovs-vswitchd")
	n.kill("ovs-vswitchd")
	n.eventually("another ovs-vswitchd serves", func() bool {
		pid := n.pid("ovs-vswitchd")
		return pid != 0 && pid != killed && n.reached()
	})
	check("after a restart")
}

// TestCheck: Check reports missing daemons.
func TestCheck(t *testing.T) {
	if err := Check(t.Context(), t.TempDir()); err == nil {
		t.Error("nothing runs, and that is in order")
	}
}
