package election

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
)

// pooled are the objects of a cluster with a pool.
type pooled struct {
	mu       sync.Mutex
	pool     antrea.ExternalIPPoolSpec
	egresses map[string]bool
}

func (p *pooled) change(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// decide returns the Egresses as the policy engine of a node sees them.
func (p *pooled) decide(node string, nodes int, have map[netip.Addr]model.EgressLease) []model.EgressAddress {
	e := policy.New(node)
	for i := range nodes {
		n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.0.%d.0/24", i)}}}
		n.Name = fmt.Sprintf("n%d", i)
		n.Labels = map[string]string{"name": n.Name}
		e.SetNode(n)
	}
	p.mu.Lock()
	pool := &antrea.OwnExternalIPPool{Spec: p.pool}
	pool.Name = "pool"
	e.SetAntrea(pool)
	for name := range p.egresses {
		o := &antrea.NodeEgress{}
		o.Name, o.UID = name, types.UID("uid-"+name)
		o.Spec.ExternalIPPool, o.Spec.AppliedTo.PodSelector = "pool", &metav1.LabelSelector{}
		e.SetAntrea(o)
	}
	p.mu.Unlock()
	e.Egresses().SetLeases(have)
	for _, u := range e.Flush() {
		if u, ok := u.(model.EgressesUpdate); ok {
			return u.Egresses
		}
	}
	return nil
}

// allocated returns the address of each Egress that has one. No two Egresses have one address.
func (w *world) allocated(t *testing.T, p *pooled) map[string]netip.Addr {
	t.Helper()
	all := map[string]netip.Addr{}
	for _, e := range p.decide("n0", len(w.nodes), w.server.leases()) {
		if !e.Address.IsValid() {
			continue
		}
		for name, a := range all {
			if a == e.Address {
				t.Fatalf("%s and %s have %s", name, e.Object.Name, a)
			}
		}
		all[e.Object.Name] = e.Address
	}
	return all
}

// awaitsPool waits until as many Egresses have an address and a node, and returns the addresses. No two nodes ever have one.
func (w *world) awaitsPool(t *testing.T, p *pooled, want int) map[string]netip.Addr {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if both := w.conflict(); both != "" {
			t.Fatalf("two nodes have one address: %s", both)
		}
		all := w.allocated(t, p)
		held := 0
		for _, a := range w.addresses {
			held += len(w.having(a))
		}
		missing := slices.ContainsFunc(slices.Collect(maps.Values(all)), func(a netip.Addr) bool { return len(w.having(a)) != 1 })
		if len(all) == want && held == want && !missing {
			return all
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d of %d Egresses have an address: %v; nodes have %d", len(all), want, all, held)
		}
	}
}

// TestPool: each Egress gets an address of the pool that no other one has, and keeps it: over the death of a node and of all
// agents, and when other nodes are to hold it. Late watches and slow requests change nothing. An Egress that goes gives its address back.
func TestPool(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	random := seeded.Rand(t, t.Name())
	for range 4 {
		synctest.Test(t, func(t *testing.T) { usePool(t, random) })
		if t.Failed() {
			return
		}
	}
}

func usePool(t *testing.T, random *rand.Rand) {
	const nodes, size = 3, 6
	p := &pooled{pool: antrea.ExternalIPPoolSpec{IPRanges: []antrea.IPRange{{CIDR: "192.0.2.0/29"}}}, egresses: map[string]bool{"b": true, "c": true, "d": true}}
	w := newWorld(random, nodes, 0, DefaultTiming())
	for i := range size {
		w.addresses = append(w.addresses, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}))
	}
	for _, n := range w.nodes {
		n.stop()
		n.decide = func(have map[netip.Addr]model.EgressLease) []model.EgressAddress {
			return p.decide(n.name, nodes, have)
		}
		n.lag, n.link.slow = time.Duration(random.IntN(3000))*time.Millisecond, time.Duration(random.IntN(900))*time.Millisecond
		n.start(DefaultTiming())
	}
	w.awaitsPool(t, p, 3)
	p.change(func() { p.egresses["a"] = true }) // would be the first one, if all were allocated again
	w.awaitsPool(t, p, 4)
	time.Sleep(time.Minute) // an address that was allocated twice is given back
	first := w.awaitsPool(t, p, 4)
	keeps := func(when string, want int) map[string]netip.Addr {
		t.Helper()
		now := w.awaitsPool(t, p, want)
		for name, a := range first {
			if p.egresses[name] && now[name] != a {
				t.Fatalf("%s %s has %s, not %s", when, name, now[name], a)
			}
		}
		return now
	}

	dead := w.nodes[random.IntN(nodes)]
	dead.stop()
	time.Sleep(20 * time.Second)
	keeps("after the death of a node", 4)
	dead.start(DefaultTiming())
	for _, n := range w.nodes {
		n.stop()
	}
	time.Sleep(5 * time.Minute)
	for _, n := range w.nodes {
		n.start(DefaultTiming())
	}
	time.Sleep(20 * time.Second)
	keeps("after a restart of all agents", 4)

	for _, name := range []string{"nobody", "n1"} {
		p.change(func() { p.pool.NodeSelector.MatchLabels = map[string]string{"name": name} })
		time.Sleep(time.Minute)
	}
	keeps("at another node", 4)
	for _, a := range w.addresses {
		if has := w.having(a); len(has) > 0 && !slices.Equal(has, []string{"n1"}) {
			t.Errorf("%v have %s", has, a)
		}
	}
	p.change(func() {
		p.pool.NodeSelector.MatchLabels = nil
		for _, name := range []string{"e", "f", "g"} {
			p.egresses[name] = true
		}
	})
	all := keeps("with more Egresses", size)
	gone := slices.Sorted(maps.Keys(all))[random.IntN(size)]
	p.change(func() { delete(p.egresses, gone) })
	time.Sleep(time.Minute)
	now := keeps("after one has gone", size)
	for name, a := range now {
		if before, had := all[name]; !had && a != all[gone] {
			t.Errorf("%s has %s, not %s of %s", name, a, all[gone], gone)
		} else if had && before != a {
			t.Errorf("%s has %s, not %s", name, a, before)
		}
	}
	p.change(func() { clear(p.egresses) })
	time.Sleep(time.Minute)
	if left := w.server.leases(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.end()
}

// TestPoolSkipsAddressesOfOthers: an address that another host answers for goes to no Egress, and no node holds it. When it is free, it does.
func TestPoolSkipsAddressesOfOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	random := seeded.Rand(t, t.Name())
	synctest.Test(t, func(t *testing.T) {
		const nodes = 3
		p := &pooled{pool: antrea.ExternalIPPoolSpec{IPRanges: []antrea.IPRange{{CIDR: "192.0.2.0/29"}}}, egresses: map[string]bool{"a": true, "b": true, "c": true}}
		w := newWorld(random, nodes, 0, DefaultTiming())
		for i := range 6 {
			w.addresses = append(w.addresses, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}))
		}
		others := []netip.Addr{w.addresses[0], w.addresses[2]}
		for _, n := range w.nodes {
			n.stop()
			n.kernel.foreign = others
			n.decide = func(have map[netip.Addr]model.EgressLease) []model.EgressAddress {
				return p.decide(n.name, nodes, have)
			}
			n.start(DefaultTiming())
		}
		check := func(all map[string]netip.Addr) {
			t.Helper()
			for name, a := range all {
				if slices.Contains(others, a) {
					t.Errorf("%s has %s, which is another host's", name, a)
				}
			}
		}
		check(w.awaitsPool(t, p, 3))
		p.change(func() { p.egresses["d"], p.egresses["e"] = true, true })
		time.Sleep(10 * time.Minute) // four addresses for five, and the Leases of those without an Egress are deleted
		check(w.awaitsPool(t, p, 4))
		for _, n := range w.nodes {
			n.stop()
			n.kernel.foreign = nil
			n.start(DefaultTiming())
		}
		w.awaitsPool(t, p, 5)
		w.end()
	})
}

// TestSweep: a Lease goes with its Egress also if no node has the address, at once if the node that had it last is alive, or if the node with it is dead. Leases of Egresses that are there stay,
// and so does the one of a node that is alive.
func TestSweep(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	random := seeded.Rand(t, t.Name())
	synctest.Test(t, func(t *testing.T) {
		const nodes = 3
		p := &pooled{pool: antrea.ExternalIPPoolSpec{IPRanges: []antrea.IPRange{{CIDR: "192.0.2.0/29"}}}, egresses: map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true}}
		w := newWorld(random, nodes, 0, DefaultTiming())
		for i := range 6 {
			w.addresses = append(w.addresses, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}))
		}
		for _, n := range w.nodes {
			n.stop()
			n.decide = func(have map[netip.Addr]model.EgressLease) []model.EgressAddress {
				return p.decide(n.name, nodes, have)
			}
			n.start(DefaultTiming())
		}
		first := w.awaitsPool(t, p, 5)
		// Nobody has the address: the node that had it last deletes the Lease.
		p.change(func() { p.pool.NodeSelector.MatchLabels = map[string]string{"name": "nobody"} })
		time.Sleep(time.Minute)
		p.change(func() { delete(p.egresses, "e") })
		time.Sleep(10 * time.Second)
		w.expectLeases(t, first, "a", "b", "c", "d")
		// No node remembers that it had the address.
		for _, n := range w.nodes {
			n.stop()
			n.start(DefaultTiming())
		}
		time.Sleep(10 * time.Second)
		p.change(func() { delete(p.egresses, "a") })
		time.Sleep(30 * time.Second)
		if left := w.server.leases(); len(left) != 4 {
			t.Errorf("a node that knows of an Egress late would have taken its address: %v", left)
		}
		time.Sleep(5 * time.Minute)
		w.expectLeases(t, first, "b", "c", "d")
		// The node with it is dead.
		p.change(func() { p.pool.NodeSelector.MatchLabels = map[string]string{"name": "n1"} })
		w.awaitsPool(t, p, 3)
		w.nodes[1].stop()
		p.change(func() { delete(p.egresses, "b") })
		time.Sleep(5 * time.Minute)
		w.expectLeases(t, first, "c", "d")
		// The node with it is alive, and does not know that the Egress is gone.
		w.nodes[1].decide = func(have map[netip.Addr]model.EgressLease) []model.EgressAddress {
			stale := &pooled{pool: p.pool, egresses: map[string]bool{"c": true, "d": true}}
			return stale.decide("n1", nodes, have)
		}
		w.nodes[1].start(DefaultTiming())
		w.awaitsPool(t, p, 2)
		p.change(func() { delete(p.egresses, "c") })
		time.Sleep(10 * time.Minute)
		w.expectLeases(t, first, "c", "d")
		w.end()
	})
}

// expectLeases checks that there are the Leases of these Egresses, with their first addresses.
func (w *world) expectLeases(t *testing.T, first map[string]netip.Addr, names ...string) {
	t.Helper()
	left := w.server.leases()
	for _, name := range names {
		if left[first[name]].Owner != "uid-"+name {
			t.Errorf("%s has lost %s: %v", name, first[name], left)
		}
	}
	if len(left) != len(names) {
		t.Errorf("Leases: %v, want those of %v", left, names)
	}
}
