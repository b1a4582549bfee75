package property

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netns"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/test/policytest"
)

// step sets or deletes one object.
type step func(*dataplane)

// history has the steps of one object: wrong versions of it come and go, and at
// last it is as in the final cluster, or deleted.
type history []step

// object has the steps that set and delete one object.
type object struct{ set, remove step }

// objects returns the objects of a cluster by name, with the attachments of the
// node's pods.
func objects(c *oracle.Cluster, node string) map[string]object {
	all := map[string]object{}
	for _, n := range c.Nodes {
		all["node "+n.Name] = object{func(d *dataplane) { d.engine.SetNode(n) }, func(d *dataplane) { d.engine.DeleteNode(n.Name) }}
	}
	for _, n := range c.Namespaces {
		all["namespace "+n.Name] = object{func(d *dataplane) { d.engine.SetNamespace(n) }, func(d *dataplane) { d.engine.DeleteNamespace(n.Name) }}
	}
	for _, p := range c.Pods {
		id := policytest.PodID(p)
		all["pod "+id.String()] = object{func(d *dataplane) { d.engine.SetPod(p) }, func(d *dataplane) { d.engine.DeletePod(id) }}
	}
	for _, p := range c.Policies {
		all["policy "+p.Namespace+"/"+p.Name] = object{
			func(d *dataplane) { d.engine.SetNetworkPolicy(p) }, func(d *dataplane) { d.engine.DeleteNetworkPolicy(p.Namespace, p.Name) },
		}
	}
	for _, p := range c.ClusterPolicies {
		all["cluster policy "+p.Name] = object{
			func(d *dataplane) { d.engine.SetClusterNetworkPolicy(p) }, func(d *dataplane) { d.engine.DeleteClusterNetworkPolicy(p.Name) },
		}
	}
	all["isolation"] = object{
		func(d *dataplane) { d.engine.SetIsolation(c.Antrea.Isolation) }, func(d *dataplane) { d.engine.SetIsolation(false) },
	}
	for _, o := range c.Antrea.All() {
		all[fmt.Sprint("antrea ", o.ID())] = object{
			func(d *dataplane) { d.engine.SetAntrea(o) }, func(d *dataplane) { d.engine.DeleteAntrea(o.ID()) },
		}
	}
	for id, p := range podsOn(c, node) {
		all["attachment "+id.String()] = object{
			func(d *dataplane) { d.attach(id, addresses(p)) }, func(d *dataplane) { d.detach(id) },
		}
	}
	return all
}

// histories returns the history of each object of the clusters; the last cluster
// is the end. An object that comes again is changed in place, or deleted and
// made anew, and any step may come twice.
func histories(clusters []*oracle.Cluster, node string, random *rand.Rand) map[string]history {
	all := map[string]history{}
	for i, c := range clusters {
		final := i == len(clusters)-1
		now := objects(c, node)
		for _, name := range slices.Sorted(maps.Keys(now)) {
			all[name] = append(all[name], now[name].set)
			if random.IntN(4) == 0 {
				all[name] = append(all[name], now[name].remove, now[name].set)
			}
		}
		if final {
			break
		}
		next := objects(clusters[i+1], node)
		for _, name := range slices.Sorted(maps.Keys(now)) {
			if _, stays := next[name]; !stays || random.IntN(2) == 0 {
				all[name] = append(all[name], now[name].remove)
			}
		}
	}
	return all
}

// orders is the number of random orders for each backend.
func orders(backend string) int {
	if backend == config.NFTables {
		return 100
	}
	return 50
}

// TestOrderDoesNotMatter has the same updates come in any order, with wrong
// versions, deletions and applies anywhere: the kernel ends in the same state.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	const node = "node1"
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			lockThread(t)
			needTools(t, backend)
			k := newKernel(t, backend, node, randomNodes())
			applies, size := 0, 0
			seeded.Checks(t, orders(backend), func(rt *rapid.T) {
				var clusters []*oracle.Cluster
				for range rapid.IntRange(1, 3).Draw(rt, "clusters") {
					clusters = append(clusters, crowdedCluster(rt))
				}
				random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "order"), 0))
				final := clusters[len(clusters)-1]
				want := outcome(rt, backend, node, k, final, func(d *dataplane) { d.become(nil, final) })
				got := outcome(rt, backend, node, k, final, func(d *dataplane) { applies += shuffled(rt, d, clusters, random) })
				if diff := cmp.Diff(want, got); diff != "" {
					rt.Fatalf("the order matters (-straight +shuffled):\n%s", diff)
				}
				size += len(got)
			})
			t.Logf("%d applies on the way, %d bytes of listings", applies, size)
			if applies == 0 || size == 0 {
				t.Error("nothing was tested")
			}
		})
	}
}

// newKernel makes a network namespace, which the thread enters, and the
// backend's needs in it.
func newKernel(t *testing.T, backend, node string, nodes underlay) kernel {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	k := kernel{netns: int(ns)}
	if usesBridge(backend) {
		k.bridge = newOVS(t, node, nodes)
	}
	return k
}

// outcome has a new dataplane do something that ends in the final cluster, and
// returns the kernel's state then. Another apply writes nothing, nor does a
// new dataplane over the state of the first. Nothing is left behind.
func outcome(rt *rapid.T, backend, node string, k kernel, final *oracle.Cluster, do func(*dataplane)) string {
	d, err := newDataplane(backend, node, k)
	if err != nil {
		rt.Fatal(err)
	}
	do(d)
	d.program(rt)
	for _, reread := range []bool{false, true} {
		if reread {
			d.invalidate()
		}
		if n := d.program(rt); n != 0 {
			rt.Fatalf("another apply (reading first: %v) sent %d mutating messages", reread, n)
		}
	}
	restarted, err := newDataplane(backend, node, k)
	if err != nil {
		rt.Fatal(err)
	}
	restarted.become(nil, final)
	if n := restarted.program(rt); n != 0 {
		rt.Fatalf("after a restart, %d mutating messages were sent", n)
	}
	held, err := dump(backend, k)
	if err := errors.Join(err, restarted.close(), d.remove(), d.close()); err != nil {
		rt.Fatal(err)
	}
	return held
}

// shuffled carries out the histories in a random order, that of each object kept,
// with flushes and applies between, and returns the number of applies. This
// node's own object comes first, as in the agent: nothing is programmed before.
func shuffled(rt *rapid.T, d *dataplane, clusters []*oracle.Cluster, random *rand.Rand) (applies int) {
	d.engine.SetNode(clusters[0].Nodes[0])
	all := histories(clusters, d.node, random)
	delete(all, "node "+d.node)
	var queue []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		h := all[name]
		for range h {
			queue = append(queue, name)
		}
	}
	slices.Sort(queue)
	random.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	for _, name := range queue {
		all[name][0](d)
		all[name] = all[name][1:]
		switch random.IntN(6) {
		case 0:
			d.flush()
		case 1:
			if random.IntN(4) == 0 {
				d.invalidate()
			}
			applies++
			d.program(rt)
		}
	}
	return applies
}
