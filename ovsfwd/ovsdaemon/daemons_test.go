package ovsdaemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func start(t *testing.T) (*Daemons, string) {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	ns := fmt.Sprintf("flx-ovsd-%d", os.Getpid())
	command(t, "ip", "netns", "add", ns)
	t.Cleanup(func() { command(t, "ip", "netns", "del", ns) })
	dir, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := Start(ctx, Options{Dir: dir, NetNS: ns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d, ns
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestDaemonsRunInTheNamespace(t *testing.T) {
	d, ns := start(t)
	want := strings.TrimSpace(command(t, "ip", "netns", "exec", ns, "readlink", "/proc/self/ns/net"))
	db, vs := d.PIDs()
	for _, pid := range []int{db, vs} {
		got, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("pid %d runs in %s, want %s", pid, got, want)
		}
	}
	command(t, "ovs-vsctl", "--timeout=10", "--db=unix:"+d.DBSocket(), "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	if out := command(t, "ip", "netns", "exec", ns, "ip", "link"); !strings.Contains(out, "br0") {
		t.Errorf("bridge's local port is not in the namespace:\n%s", out)
	}
}

func TestVSwitchdRestartKeepsTheDatabase(t *testing.T) {
	d, _ := start(t)
	command(t, "ovs-vsctl", "--timeout=10", "--db=unix:"+d.DBSocket(), "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	if err := d.KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	if _, vs := d.PIDs(); vs != 0 {
		t.Errorf("vswitchd still has pid %d", vs)
	}
	if err := d.StartVSwitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := command(t, "ovs-vsctl", "--timeout=10", "--db=unix:"+d.DBSocket(), "list-br"); out != "br0\n" {
		t.Errorf("bridges after restart: %q", out)
	}
}

func TestStopLeftover(t *testing.T) {
	d, _ := start(t)
	db, vs := d.db, d.vswitchd
	if err := StopLeftover(d.Dir()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*process{db, vs} {
		select {
		case <-p.ended:
		case <-time.After(30 * time.Second):
			t.Errorf("%s still runs", p.name)
		}
	}
	d.db, d.vswitchd = nil, nil
	if err := StopLeftover(d.Dir()); err != nil {
		t.Errorf("second time: %v", err)
	}
}

func TestStartRefusesLongDirectories(t *testing.T) {
	if _, err := Start(t.Context(), Options{Dir: "/tmp/" + strings.Repeat("x", 100)}); err == nil {
		t.Error("no error")
	}
}

// TestCrashLeavesNothingForLong has daemons without a living owner: the next TempDir ends them.
func TestCrashLeavesNothingForLong(t *testing.T) {
	// TempDir of any other process would end the daemons too, and so may one that starts
	// them meanwhile, as tests of other packages do. The path of a socket must be short.
	private, err := os.MkdirTemp("/tmp", "flx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(private) })
	t.Setenv("TMPDIR", private)
	d, ns := start(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(os.TempDir(), fmt.Sprintf("flx-run-%d-left", gone.Process.Pid))
	if err := os.Mkdir(left, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(left) })
	orphan, err := Start(t.Context(), Options{Dir: left, NetNS: ns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = orphan.Stop() })
	dir, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the directory of a process that is gone: %v", err)
	}
	for _, o := range []struct {
		of   *Daemons
		name string
		live bool
	}{{orphan, "orphan", false}, {d, "ours", true}} {
		db, vswitchd := o.of.PIDs()
		if isDaemon(db, o.of.Dir(), "ovsdb-server") != o.live || isDaemon(vswitchd, o.of.Dir(), "ovs-vswitchd") != o.live {
			t.Errorf("%s: live %v is not so", o.name, o.live)
		}
	}
}

// TestCrashWhileTheDatabaseIsMade starts after a machine stopped before the new
// database was complete.
func TestCrashWhileTheDatabaseIsMade(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	d := &Daemons{opts: Options{Dir: dir, DatabaseDir: dir, Schema: Schema}}
	if err := os.WriteFile(d.database()+".new", []byte("OVSDB JSON 12"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // one that is there is kept
		if err := d.createDB(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := command(t, "ovsdb-tool", "db-name", d.database()); got != "Open_vSwitch\n" {
			t.Errorf("the database is %q", got)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the database: %v, %v", entries, err)
	}
	d.opts.Schema = filepath.Join(dir, "none")
	if err := errors.Join(os.Remove(d.database()), d.createDB(t.Context())); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("without a schema: %v", err)
	}
	if _, err := os.Stat(d.database()); !os.IsNotExist(err) {
		t.Errorf("without a schema there is a database: %v", err)
	}
}

// TestAwaitFlows starts ovs-vswitchd on databases with bridges of different datapaths:
// it is to await its flows where all have the kernel's, and in no database that it is not
// to offer the kernel's datapath for.
func TestAwaitFlows(t *testing.T) {
	d, _ := start(t)
	vsctl := func(args ...string) string {
		return strings.TrimSpace(command(t, "ovs-vsctl", append([]string{"--no-wait", "--timeout=10", "--db=unix:" + d.DBSocket()}, args...)...))
	}
	for _, step := range []struct {
		name   string
		change []string
		kernel bool
		want   bool
	}{
		{"no bridge", nil, true, false},
		{"the default datapath", []string{"add-br", "br0"}, true, true},
		{"the kernel's datapath", []string{"set", "bridge", "br0", "datapath_type=system"}, true, true},
		{"the kernel's and the default", []string{"add-br", "br1"}, true, true},
		{"no kernel datapath offered", nil, false, false},
		{"again", nil, true, true},
		{"one of the userspace datapath", []string{"set", "bridge", "br1", "datapath_type=netdev"}, true, false},
	} {
		if step.change != nil {
			vsctl(step.change...)
		}
		d.opts.Kernel = step.kernel
		got, err := d.setAwaitFlows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		set, err := d.awaitsFlows(t.Context())
		if err != nil || got != step.want || set != step.want {
			t.Errorf("%s: awaits %v, the key is set: %v, error %v, want %v", step.name, got, set, err, step.want)
		}
	}
	vsctl("set", "bridge", "br1", "datapath_type=system")
	if _, err := d.setAwaitFlows(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.forgetAwaitFlows(); err != nil || strings.Contains(vsctl("get", "Open_vSwitch", ".", "other_config"), KeyAwaitFlows) {
		t.Errorf("the key stays after the end of ovs-vswitchd: %v", err)
	}
	if err := d.db.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.setAwaitFlows(t.Context()); err == nil {
		t.Error("the key counts as set without a database")
	}
	if err := d.startDB(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestAgentThatNeverComes keeps a switch that no agent programs: the log names that, and
// the end of it.
func TestAgentThatNeverComes(t *testing.T) {
	d, _ := start(t)
	var log bytes.Buffer
	k := newKeeper(d, Hooks{Serving: func(context.Context) {}}, slog.New(slog.NewTextHandler(&log, nil)))
	k.patience = 0
	command(t, "ovs-vsctl", "--no-wait", "--timeout=10", "--db=unix:"+d.DBSocket(), "set", "Open_vSwitch", ".", "other_config:"+KeyAwaitFlows+"=true")
	k.nameAgent(t.Context())
	if log.Len() > 0 {
		t.Errorf("a switch that awaits no agent: %s", log.String())
	}
	k.awaits = time.Now().Add(-time.Minute)
	k.nameAgent(t.Context())
	if !strings.Contains(log.String(), "NO AGENT has programmed ovs-vswitchd") || !strings.Contains(log.String(), "since=1m") {
		t.Errorf("no agent came: %s", log.String())
	}
	k.patience = time.Hour
	log.Reset()
	k.nameAgent(t.Context())
	k.patience = 0
	command(t, "ovs-vsctl", "--no-wait", "--timeout=10", "--db=unix:"+d.DBSocket(), "remove", "Open_vSwitch", ".", "other_config", KeyAwaitFlows)
	k.nameAgent(t.Context())
	if text := log.String(); strings.Contains(text, "NO AGENT") || !strings.Contains(text, "the agent has programmed ovs-vswitchd") {
		t.Errorf("the agent came: %s", text)
	}
}
