package wanted_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/test/tablestest"
)

// What is wanted of the switch, loaded by its own tool and read back, is the same.
func TestFlowsRoundTrip(t *testing.T) {
	if err := ovsdaemon.Available(); err != nil {
		t.Skip(err)
	}
	ns := tablestest.NewNamespace(t, "ovs-vsctl", "ovs-ofctl")
	dir, err := ovsdaemon.TempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ovs, err := ovsdaemon.Start(ctx, ovsdaemon.Options{Dir: dir, NetNS: ns.Name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ovs.Stop(); err != nil {
			t.Error(err)
		}
	})
	run := func(argv ...string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), ovs.Env()...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out[:min(len(out), 2000)])
		}
	}
	run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "protocols=OpenFlow15")
	at := live.Node{NetNS: fmt.Sprintf("/proc/self/fd/%d", ns.FD), OVSRunDir: dir, Bridge: "br0"}
	for i, m := range modelsOf(t, 7) {
		for _, backend := range []string{config.OpenFlow, config.NFTables} {
			want, err := wanted.Of(m, backend)
			if err != nil {
				t.Fatal(err)
			}
			want.Tables, want.IPSets = nil, nil
			file := filepath.Join(dir, "flows")
			out, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := dump.WriteFlows(out, compare.Canonical(want, compare.Options{}).Flows, dump.TextOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := out.Close(); err != nil {
				t.Fatal(err)
			}
			run("ovs-ofctl", "-O", "OpenFlow15", "del-flows", "unix:"+filepath.Join(dir, "br0.mgmt"))
			run("ovs-ofctl", "-O", "OpenFlow15", "del-meters", "unix:"+filepath.Join(dir, "br0.mgmt"))
			for _, meter := range meters(want) {
				run("ovs-ofctl", "-O", "OpenFlow15", "add-meter", "unix:"+filepath.Join(dir, "br0.mgmt"), fmt.Sprintf("meter=%d,pktps,bands=type=drop,rate=1", meter))
			}
			run("ovs-ofctl", "-O", "OpenFlow15", "add-flows", "unix:"+filepath.Join(dir, "br0.mgmt"), file)
			parts, err := live.Read(ctx, at, live.Options{})
			if err != nil {
				t.Fatal(err)
			}
			found, err := live.Parse(parts)
			if err != nil {
				t.Fatal(err)
			}
			if n := found.Count(); n.Foreign > 0 || n.Flows < 50 {
				t.Errorf("model %d: read %+v", i, n)
			}
			same(t, fmt.Sprintf("model %d, %s", i, backend), want, found)
		}
	}
}

// TestWantedWithoutMeters: of a switch that takes no meters, the flows that bound rates are
// not wanted, and all others are.
func TestWantedWithoutMeters(t *testing.T) {
	for i, m := range modelsOf(t, 7) {
		bounded, err := wanted.Of(m, config.OpenFlow)
		if err != nil {
			t.Fatal(err)
		}
		if len(meters(bounded)) == 0 {
			t.Errorf("model %d: no flow bounds a rate", i)
		}
		m.RatesUnbounded = true
		unbounded, err := wanted.Of(m, config.OpenFlow)
		if err != nil {
			t.Fatal(err)
		}
		bounded.Flows = slices.DeleteFunc(bounded.Flows, func(f *flowtext.Flow) bool { return len(metersOf(f)) > 0 })
		same(t, fmt.Sprintf("model %d", i), bounded, unbounded)
	}
}

// meters returns the meters that flows name, each once.
func meters(s *dump.State) []uint32 {
	var all []uint32
	for _, f := range s.Flows {
		all = append(all, metersOf(f)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func metersOf(f *flowtext.Flow) []uint32 {
	var all []uint32
	for _, a := range f.Actions {
		if m, ok := a.(flowtext.Meter); ok {
			all = append(all, m.ID)
		}
	}
	return all
}
