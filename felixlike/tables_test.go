package felixlike

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestLimitedTables reads the tables of this machine and of a real switch. The kernel counts
// the neighbours of all network namespaces together.
func TestLimitedTables(t *testing.T) {
	b := ovstest.NewBridge(t)
	read := func() map[string]metrics.Table {
		all := map[string]metrics.Table{}
		for _, one := range limitedTables(t.Context(), vswitchd.New(b.Daemons.Dir(), "netdev")) {
			all[one.Name] = one
		}
		return all
	}
	limits := map[string]string{
		"conntrack":      "net/netfilter/nf_conntrack_max",
		"neighbour-ipv4": "net/ipv4/neigh/default/gc_thresh3", "neighbour-ipv6": "net/ipv6/neigh/default/gc_thresh3",
	}
	before := read()
	for name, key := range limits {
		limit, err := sysctl.Read(key)
		got, found := before[name]
		if found != (err == nil) || found && fmt.Sprint(got.Limit) != limit {
			t.Errorf("%s: %+v, %v; the setting is %q, %v", name, got, found, limit, err)
		}
	}
	if got := before["switch-conntrack"]; got.Limit != 3_000_000 {
		t.Errorf("connections of the switch: %+v", got)
	}
	if _, found := before["neighbour-ipv4"]; !found {
		t.Skip("the kernel shows neighbour tables in the first network namespace only, and this is another one")
	}
	const added = 300
	var batch bytes.Buffer
	fmt.Fprintln(&batch, "link add d0 type veth peer name d1\nlink set d0 up")
	for i := range added {
		fmt.Fprintf(&batch, "neigh add 10.9.%d.%d lladdr 02:00:00:00:00:01 nud stale dev d0\n", i/200, i%200+1)
		fmt.Fprintf(&batch, "neigh add fd09::%x lladdr 02:00:00:00:00:01 nud stale dev d0\n", i+1)
	}
	// The namespace, and its neighbours, last until standard input ends.
	file := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(file, batch.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	hold := exec.Command("unshare", "--net", "sh", "-c", "ip -batch "+file+" && echo done && cat")
	stdin, err := hold.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := hold.StdoutPipe()
	if err == nil {
		err = hold.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		hold.Wait() //nolint:errcheck // only its namespace matters
	}()
	if _, err := out.Read(make([]byte, 4)); err != nil {
		t.Fatalf("the neighbours were not added: %v", err)
	}
	after := read()
	for _, name := range []string{"neighbour-ipv4", "neighbour-ipv6"} {
		// Other programs' neighbours come and go meanwhile.
		if grown := int(after[name].Entries) - int(before[name].Entries); grown < added/2 || grown > 2*added {
			t.Errorf("%s grew by %d with %d more neighbours", name, grown, added)
		}
	}
}

// TestPermanentNeighboursHaveNoLimit adds the kind of neighbours that a node has for its pods
// to a network namespace, and counts from there. The statistics are read by way of a thread
// that stays in the test's namespace.
func TestPermanentNeighboursHaveNoLimit(t *testing.T) {
	const added = 300
	b := ovstest.NewBridge(t)
	var batch bytes.Buffer
	fmt.Fprintln(&batch, "link add d0 type veth peer name d1\nlink set d0 up")
	for i := range added {
		fmt.Fprintf(&batch, "neigh add 10.9.%d.%d lladdr 02:00:00:00:00:01 dev d0\n", i/200, i%200+1)
		fmt.Fprintf(&batch, "neigh add fd09::%x lladdr 02:00:00:00:00:01 dev d0\n", i+1)
	}
	file := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(file, batch.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Run("ip", "-n", b.NS, "-batch", file)
	ns, err := netns.GetFromName(b.NS)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close() //nolint:errcheck // it is only read
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close() //nolint:errcheck // it is only read
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, family := range map[string]int{"arp_cache": netlink.FAMILY_V4, "ndisc_cache": netlink.FAMILY_V6} {
		path := fmt.Sprintf("/proc/self/task/%d/net/stat/%s", unix.Gettid(), name)
		all, err := neighbourEntries(path)
		if err != nil {
			t.Skip("the kernel shows neighbour tables in the first network namespace only, and this is another one: ", err)
		}
		outcome := make(chan uint64)
		go func() {
			defer close(outcome)
			runtime.LockOSThread() // for ever, unless it is back in its namespace
			if err := netns.Set(ns); err != nil {
				t.Error(err)
				return
			}
			counted, err := limitedNeighbours(path, family)
			if err != nil {
				t.Error(err)
			}
			if err := netns.Set(home); err != nil {
				t.Error(err)
			} else {
				runtime.UnlockOSThread()
			}
			outcome <- counted
		}()
		// Other programs' neighbours come and go meanwhile.
		if counted := <-outcome; counted+added > all+added/2 {
			t.Errorf("%s: %d of %d entries count, with %d permanent ones", name, counted, all, added)
		}
	}
}
