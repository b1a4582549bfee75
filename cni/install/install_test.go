package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// node has a node's directories and an image's files.
type node struct {
	Options
	t     *testing.T
	found []Finding
}

const chained = `{"cniVersion": "1.0.0", "name": "felixlike", "plugins": [{"type": "felixlike-cni"}, {"type": "portmap"}]}`

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	// Never unlocked: the thread and its namespace end with the test.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	n := &node{t: t, Options: Options{
		Source: dir + "/image", Conflist: dir + "/05-felixlike.conflist", BinDir: dir + "/bin", ConfDir: dir + "/net.d", StateDir: dir + "/state",
		Backend: "nftables", Datapath: "auto", Try: func(context.Context) error { return nil },
	}}
	for _, d := range []string{n.Source, n.BinDir, n.ConfDir, n.StateDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.put(n.Source, "felixlike-cni", "own 1")
	n.put(n.Source, "portmap", "ref 1")
	n.put(n.Source, "bandwidth", "ref 1")
	n.put(dir, "05-felixlike.conflist", chained)
	return n
}

func (n *node) put(dir, name, text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// expect compares a directory with "name=text" items.
func (n *node) expect(dir string, want ...string) {
	n.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		n.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			n.t.Fatal(err)
		}
		got = append(got, e.Name()+"="+string(data))
	}
	if !slices.Equal(got, want) {
		n.t.Errorf("%s has\n  %s\nwant\n  %s", filepath.Base(dir), strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (n *node) install() {
	n.t.Helper()
	n.found = nil
	if err := n.Install(n.t.Context(), n.report); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) report(f Finding) { n.found = append(n.found, f) }

func (n *node) says(what string) string {
	for _, f := range n.found {
		if strings.HasPrefix(f.What, what) {
			return f.String()
		}
	}
	return ""
}

func TestInstallAndUpgrade(t *testing.T) {
	n := newNode(t)
	n.put(n.BinDir, "portmap", "the distribution's")
	n.put(n.BinDir, "other", "theirs")
	n.put(n.ConfDir, "10-other.conflist", "{}")
	n.install()
	n.expect(n.BinDir, "bandwidth=ref 1", "felixlike-cni=own 1", "other=theirs", "portmap=the distribution's")
	n.expect(n.ConfDir, "05-felixlike.conflist="+chained, "10-other.conflist={}")
	if info, err := os.Stat(n.BinDir + "/felixlike-cni"); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("felixlike-cni: %v, %v", info.Mode(), err)
	}
	if got := n.says("plugin portmap"); !strings.Contains(got, "not ours") {
		t.Errorf("portmap of others: %q", got)
	}

	// A newer image replaces our files, and a renamed configuration moves.
	n.put(n.Source, "felixlike-cni", "own 2")
	n.put(n.Source, "portmap", "ref 2")
	n.put(n.Source, "bandwidth", "ref 2")
	n.put(filepath.Dir(n.Conflist), "00-felixlike.conflist", chained)
	n.Conflist = filepath.Join(filepath.Dir(n.Conflist), "00-felixlike.conflist")
	n.install()
	n.expect(n.BinDir, "bandwidth=ref 2", "felixlike-cni=own 2", "other=theirs", "portmap=the distribution's")
	n.expect(n.ConfDir, "00-felixlike.conflist="+chained, "10-other.conflist={}")

	// A second run writes nothing.
	before, err := os.Stat(n.BinDir + "/felixlike-cni")
	if err != nil {
		t.Fatal(err)
	}
	n.install()
	if after, err := os.Stat(n.BinDir + "/felixlike-cni"); err != nil || !os.SameFile(before, after) {
		t.Errorf("written again: %v", err)
	}
}

func TestInstallChangesNothingWhereSomethingIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*node)
		want  string
	}{
		"backend": {func(n *node) { n.Try = func(context.Context) error { return errors.New("no sets") } }, "backend nftables: no sets"},
		"module": {func(n *node) {
			n.Datapath = "system"
			if level, _ := n.datapath(n.t.Context()); level == Good {
				n.t.Skip("this kernel has Open vSwitch's module")
			}
		}, "module openvswitch does not answer"},
		"not json": {func(n *node) { n.put(filepath.Dir(n.Conflist), "05-felixlike.conflist", "{") }, "05-felixlike.conflist: "},
		"other plugin": {func(n *node) {
			n.put(filepath.Dir(n.Conflist), "05-felixlike.conflist", `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "bridge"}]}`)
		}, "first plugin must be felixlike-cni"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c.spoil(n)
			if err := n.Install(t.Context(), n.report); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			n.expect(n.BinDir)
			n.expect(n.ConfDir)
		})
	}
}

func TestChainedPluginThatIsNowhere(t *testing.T) {
	n := newNode(t)
	n.put(filepath.Dir(n.Conflist), "05-felixlike.conflist", strings.ReplaceAll(chained, "portmap", "tuning"))
	if err := n.Install(t.Context(), n.report); err == nil || !strings.Contains(err.Error(), "plugin tuning") {
		t.Errorf("error %v", err)
	}
	n.expect(n.ConfDir)
	n.put(n.BinDir, "tuning", "theirs")
	n.install()
}

func TestOthersBefore(t *testing.T) {
	n := newNode(t)
	n.put(n.ConfDir, "00-other.conf", "{}")
	n.install()
	if got := n.says("network configurations"); !strings.Contains(got, "00-other.conf comes before") {
		t.Errorf("%q", got)
	}
}

// TestOthersBeside: another CNI's configuration after ours is reported too, because its pods stay.
func TestOthersBeside(t *testing.T) {
	n := newNode(t)
	n.put(n.ConfDir, "10-calico.conflist", "{}")
	n.install()
	if got := n.says("network configurations"); !strings.Contains(got, "another CNI is also installed (10-calico.conflist)") {
		t.Errorf("%q", got)
	}
}

func TestConnections(t *testing.T) {
	for _, test := range []struct {
		entries uint64
		level   Level
		want    string
	}{
		{84, Good, "the table has 84 of 100 entries"},
		{85, Noted, "the table has 85 of 100 entries: above the limit new connections are dropped; empty it"},
		{100, Missing, "the table has 100 of 100 entries: it is full, and new connections are dropped; empty it"},
	} {
		o := Options{Connections: func(context.Context) []ConnectionTable {
			return []ConnectionTable{{"the table", test.entries, 100, "empty it"}}
		}}
		if level, detail := o.connections(t.Context()); level != test.level || detail != test.want {
			t.Errorf("%d entries: %s %s", test.entries, level, detail)
		}
	}
	if level, _ := (Options{Connections: func(context.Context) []ConnectionTable { return nil }}).connections(t.Context()); level != Noted {
		t.Errorf("no table: %s", level)
	}
}

// TestDatapathInUse: a kernel datapath in use needs the module, with each value of the setting.
func TestDatapathInUse(t *testing.T) {
	answers := func() error { return nil }
	silent := func() error { return errors.New("the kernel's module openvswitch does not answer") }
	for _, c := range []struct {
		inUse  string
		kernel func() error
		want   Level
		says   string
	}{
		{"system", answers, Good, "the agent uses the kernel's"},
		{"system", silent, Missing, "module openvswitch does not answer"},
		{"netdev", answers, Noted, "the agent uses the userspace datapath"},
		{"netdev", silent, Noted, "the agent uses the userspace datapath"},
	} {
		// The setting names another datapath: the agent resolved "auto", or kept the old datapath.
		for _, setting := range []string{"auto", "system", "netdev"} {
			level, detail := (Options{Datapath: setting, InUse: c.inUse, Kernel: c.kernel}).datapath(t.Context())
			if level != c.want || !strings.Contains(detail, c.says) {
				t.Errorf("%s set, %s in use: %s, %s; want %s, %s", setting, c.inUse, level, detail, c.want, c.says)
			}
		}
	}
}
