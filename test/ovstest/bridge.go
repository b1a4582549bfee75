// Package ovstest gives tests a bridge in a network namespace, run by real
// daemons, and the tools to look into it. The datapath is the userspace one, or the kernel's
// where DatapathEnv says so (test/vm).
package ovstest

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// DatapathEnv is the environment variable with the datapath of bridges, netdev if it is empty.
const DatapathEnv = "FLX_TEST_DATAPATH"

// Bridge is a bridge "br-int" with the gateway port flx-gw0 (2) and the tunnel
// port flx-tun0 (1).
type Bridge struct {
	t *testing.T
	// NS is the network namespace.
	NS      string
	Daemons *ovsdaemon.Daemons
	DB      *ovsdb.Client
	Config  ovsdb.Config
}

// NewBridge starts daemons and makes the bridge; the test's end removes all.
// The test is skipped where Open vSwitch cannot run.
func NewBridge(t *testing.T) *Bridge {
	t.Helper()
	datapath := ovsdb.DatapathNetdev
	if os.Getenv(DatapathEnv) == ovsdb.DatapathSystem {
		datapath = ovsdb.DatapathSystem
	}
	b := start(t, datapath, ovsdaemon.Options{Kernel: datapath == ovsdb.DatapathSystem})
	b.Ensure()
	return b
}

// Userspace reports whether the datapath is Open vSwitch's own in userspace.
func (b *Bridge) Userspace() bool { return b.Config.DatapathType == ovsdb.DatapathNetdev }

// NewAwaitingBridge is NewBridge with an ovs-vswitchd that waits for its flows, as at a
// start with bridges of the kernel's datapath. The bridge then changes to the userspace
// datapath.
func NewAwaitingBridge(t *testing.T) *Bridge {
	t.Helper()
	b := start(t, ovsdb.DatapathNetdev, ovsdaemon.Options{Kernel: true})
	b.Run("ovs-vsctl", "--no-wait", "--db=unix:"+b.Daemons.DBSocket(), "add-br", b.Config.Bridge)
	if err := b.Daemons.KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	if err := b.Daemons.StartVSwitchd(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.Ensure()
	return b
}

func start(t *testing.T, datapath string, o ovsdaemon.Options) *Bridge {
	t.Helper()
	if err := ovsdaemon.Available(); err != nil {
		t.Skip(err)
	}
	dir, err := ovsdaemon.TempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// The folder's name is the only one of its kind: tests may run in parallel.
	b := &Bridge{t: t, NS: "flx-" + filepath.Base(dir)}
	b.Run("ip", "netns", "add", b.NS)
	t.Cleanup(func() { b.Run("ip", "netns", "del", b.NS) })
	o.Dir, o.NetNS = dir, b.NS
	if b.Daemons, err = ovsdaemon.Start(b.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Daemons.Stop(); err != nil {
			t.Error(err)
		}
	})
	b.Config = ovsdb.Config{
		Socket: b.Daemons.DBSocket(), Bridge: "br-int", DatapathType: datapath, TunnelType: "geneve",
		Gateway: "flx-gw0", Tunnel: "flx-tun0", GatewayMAC: ovsdb.GatewayMAC("n1"),
		LocalIP: netip.MustParseAddr("192.168.77.100"), MTU: 1450, NodeName: "n1",
	}
	if b.DB, err = ovsdb.Open(b.Context(), b.Config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.DB.Close)
	return b
}

// Context returns a context that ends after a minute or with the test.
func (b *Bridge) Context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	b.t.Cleanup(cancel)
	return ctx
}

// Ensure makes the bridge and waits for its management socket.
func (b *Bridge) Ensure() {
	b.t.Helper()
	if err := b.DB.EnsureBridge(b.Context()); err != nil {
		b.t.Fatal(err)
	}
	Poll(b.t, func() error {
		_, err := os.Stat(b.Management())
		return err
	})
}

// Management is the socket of the bridge's OpenFlow service.
func (b *Bridge) Management() string { return b.Daemons.Dir() + "/br-int.mgmt" }

// Run runs a command and returns its output.
func (b *Bridge) Run(name string, args ...string) string {
	b.t.Helper()
	cmd := exec.Command(name, args...)
	if b.Daemons != nil {
		cmd.Env = append(os.Environ(), b.Daemons.Env()...)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Ofctl runs ovs-ofctl with OpenFlow 1.5; args follow the bridge's name.
func (b *Bridge) Ofctl(command string, args ...string) string {
	b.t.Helper()
	options := []string{"-O", "OpenFlow15", "--no-names", "--no-stats", command, "unix:" + b.Management()}
	return b.Run("ovs-ofctl", append(options, args...)...)
}

// Install programs flows with that owner and version, and reads them back as a restarted agent does.
func (b *Bridge) Install(owner uint16, version uint8, flows []openflow.Flow) {
	b.t.Helper()
	for _, again := range []bool{false, true} {
		conn, err := openflow.Dial(b.Context(), b.Management())
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { _ = conn.Close() })
		table := openflow.NewFlowTable(owner, version)
		table.Connect(conn)
		table.SetFlows("all", func() []openflow.Flow { return flows })
		did, err := table.Apply(b.Context())
		if err != nil || again && did.Messages > 0 {
			b.t.Fatalf("%v; again %t: %+v", err, again, did)
		}
	}
}

// Flows returns the installed flows as text, sorted, in the notation of openflow.Flow.
func (b *Bridge) Flows() []string {
	b.t.Helper()
	all, err := flowtext.Read(strings.NewReader(b.Ofctl("dump-flows")))
	if err != nil {
		b.t.Fatal(err)
	}
	flows := make([]string, len(all))
	for i, f := range all {
		flows[i] = f.String()
	}
	slices.Sort(flows)
	return flows
}

// Poll repeats a check until it passes or half a minute is over.
func Poll(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
