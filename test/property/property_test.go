package property

import (
	"maps"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/test/policytest"
)

// lockThread keeps the test on a thread that may move between namespaces and is
// not given back. It stays on one processor, so that packets keep their order: the
// first one with the fewest tests.
func lockThread(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and netfilter")
	}
	runtime.LockOSThread()
	var held, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &held); err != nil {
		t.Fatal(err)
	}
	if held.Count() == 1 {
		return // an earlier call has done it, or there is only one
	}
	at := processors.enter()
	t.Cleanup(func() { processors.leave(at) })
	one.Set(allowed[at])
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
}

// allowed are the numbers of the processors that the process may use, and processors has the tests on each.
var (
	allowed    = allowedProcessors()
	processors = occupancy{tests: make([]int, len(allowed))}
)

func allowedProcessors() (all []int) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return []int{0}
	}
	for at := range len(set) * bits.UintSize {
		if set.IsSet(at) {
			all = append(all, at)
		}
	}
	return all
}

// occupancy is the number of tests on each processor.
type occupancy struct {
	mu    sync.Mutex
	tests []int
}

func (o *occupancy) enter() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := slices.Index(o.tests, slices.Min(o.tests))
	o.tests[at]++
	return at
}

func (o *occupancy) leave(at int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tests[at]--
}

// testbed is two sites, one for each node of the random clusters, with the
// cluster they hold.
type testbed struct {
	sites   map[string]site
	cluster *oracle.Cluster
	// id numbers packets and connections; conntrack must see each for the first
	// time.
	id uint16
	// verdicts counts the verdicts.
	verdicts map[bool]int
}

func newTestbed(t *testing.T, backend string) *testbed {
	t.Helper()
	return newTestbedOf(t, backend, randomPods())
}

// newTestbedOf makes sites that can have pods of these names.
func newTestbedOf(t *testing.T, backend string, pods []string) *testbed {
	t.Helper()
	lockThread(t)
	needTools(t, backend)
	b := &testbed{sites: map[string]site{}, verdicts: map[bool]int{}}
	for name := range randomNodes() {
		if usesBridge(backend) {
			b.sites[name] = newBridge(t, backend, name, randomNodes(), pods)
		} else {
			b.sites[name] = newRouter(t, backend, name)
		}
	}
	return b
}

// clusters is the number of random clusters for a backend: one that starts
// programs takes its time.
func clusters(backend string) int {
	switch backend {
	case config.NFTables, nftablesMaps:
		return 1000
	case config.OpenFlow:
		return 300
	}
	return 150
}

// TestKernelAgreesWithOracle leads each backend from one random cluster to the
// next, and sends packets. Packets that open a connection get the oracle's verdict, and
// no packet of a denied connection passes, although both ends send.
// Answers of allowed connections pass under any policy. A
// connection that opened while there was no table is judged as if it were
// new.
func TestKernelAgreesWithOracle(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, backend)
			drawn, flushed := 0, 0
			seeded.Checks(t, clusters(backend), func(rt *rapid.T) {
				drawn++
				b.become(rt, crowdedCluster(rt))
				packets := policytest.Packets(rt, b.cluster)
				all := b.connections(packets)
				b.judgeNew(rt, all)
				b.judgeDenied(rt, all)
				if rapid.IntRange(0, 4).Draw(rt, "no table for a while") == 4 {
					flushed++
					b.judgeEstablished(rt, b.connections(packets))
				}
			})
			t.Logf("%d clusters, %d times without a table, %d packets through, %d blocked", drawn, flushed, b.verdicts[true], b.verdicts[false])
			if b.verdicts[true] == 0 || b.verdicts[false] == 0 {
				t.Errorf("one-sided: %v", b.verdicts)
			}
		})
	}
}

// become leads both sites to the next cluster, with or without a full read
// of the kernel first, and checks that a second apply of it writes nothing,
// with and without another full read.
func (b *testbed) become(rt *rapid.T, c *oracle.Cluster) {
	before := b.cluster
	b.cluster = c
	for _, name := range b.names() {
		d := b.sites[name].plane()
		d.become(before, c)
		if rapid.Bool().Draw(rt, "read first") {
			d.invalidate()
		}
		d.program(rt)
		for _, reread := range []bool{false, true} {
			if reread {
				d.invalidate()
			}
			if n := d.program(rt); n != 0 {
				rt.Fatalf("%s: another apply (reading first: %v) sent %d mutating messages", name, reread, n)
			}
		}
	}
}

// program applies and returns the number of writes. Nothing may be refused.
func (d *dataplane) program(rt rapid.TB) (writes int) {
	done, err := d.apply()
	if err != nil || len(done.Refused) > 0 {
		rt.Fatalf("%s: %v, refused %+v", d.node, err, done.Refused)
	}
	return done.Writes
}

func (b *testbed) names() []string { return slices.Sorted(maps.Keys(b.sites)) }

// describe returns a cluster as YAML.
func describe(c *oracle.Cluster) string {
	text, err := yaml.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
