package property

import (
	"flag"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/policy/policytest"
)

// clusters is the number of random clusters; -rapid.checks overrides it.
const clusters = "1000"

// testbed is two routers, one for each node of the random clusters, with the
// cluster they hold.
type testbed struct {
	routers map[string]*router
	cluster *oracle.Cluster
	// port numbers packets; conntrack must see every one for the first time.
	port uint16
}

func newTestbed(t *testing.T) *testbed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and nftables")
	}
	// The thread moves between namespaces and is not given back; it stays on
	// one processor, so that packets keep their order.
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	return &testbed{
		routers: map[string]*router{"node1": newRouter(t, "node1"), "node2": newRouter(t, "node2")},
		port:    1024,
	}
}

func TestKernelAgreesWithOracle(t *testing.T) {
	b := newTestbed(t)
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(clusters); err != nil {
			t.Fatal(err)
		}
	}
	verdicts := map[bool]int{}
	drawn := 0
	rapid.Check(t, func(rt *rapid.T) {
		drawn++
		b.become(rt, policytest.Cluster(rt))
		packets := policytest.Packets(rt, b.cluster)
		got := b.send(rt, packets)
		for i, p := range packets {
			through, tried := got[i]
			if !tried {
				continue
			}
			want := b.cluster.Evaluate(p)
			if through != want.Allowed {
				rt.Errorf("%s -> %s %s/%d: through %v, the oracle says %+v", p.Source, p.Destination, p.Protocol, p.Port, through, want)
			}
			verdicts[through]++
		}
	})
	t.Logf("%d clusters, %d packets through, %d blocked", drawn, verdicts[true], verdicts[false])
	if verdicts[true] == 0 || verdicts[false] == 0 {
		t.Errorf("one-sided: %v", verdicts)
	}
}

// become leads both routers to the next cluster, with or without a full read
// of the kernel first, and checks that a second apply of it writes nothing,
// whether it trusts what it knows or reads again.
func (b *testbed) become(rt *rapid.T, c *oracle.Cluster) {
	before := b.cluster
	b.cluster = c
	for _, r := range b.routers {
		r.become(before, c)
	}
	for name, r := range b.routers {
		if rapid.Bool().Draw(rt, "read first") {
			r.table.Invalidate()
		}
		if _, err := r.apply(); err != nil {
			rt.Fatalf("%s: %v", name, err)
		}
		for _, reread := range []bool{false, true} {
			if reread {
				r.table.Invalidate()
			}
			if n, err := r.apply(); err != nil || n != 0 {
				rt.Fatalf("%s: another apply (reading first: %v) sent %d mutating messages, %v", name, reread, n, err)
			}
		}
	}
}

// hop is one pass through a router.
type hop struct {
	router string
	in     func(*router) *port
}

func gatewayOf(r *router) *port { return r.gateway }
func uplinkOf(r *router) *port  { return r.other }

// path returns the routers that judge a packet, and false if none does or the
// dataplane drops it for another reason than policy.
func (b *testbed) path(p oracle.Packet) ([]hop, bool) {
	src, srcKnown := locate(b.cluster, p.Source)
	dst, dstKnown := locate(b.cluster, p.Destination)
	sameNode := src.node == dst.node && (src.pod || dst.pod)
	switch {
	case !srcKnown || !dstKnown || p.Source == p.Destination || !src.pod && !dst.pod:
		return nil, false
	case sameNode && src.pod && dst.pod:
		return []hop{{src.node, gatewayOf}}, true
	case sameNode: // a pod and its own node: INPUT or OUTPUT, not FORWARD
		return nil, false
	}
	var hops []hop
	if src.pod {
		hops = append(hops, hop{src.node, gatewayOf})
	}
	if dst.pod {
		in := gatewayOf
		if src.node == "" {
			in = uplinkOf
		}
		hops = append(hops, hop{dst.node, in})
	}
	return hops, true
}

// send puts the packets through the routers on their paths; the result holds,
// by index, whether those that were tried came through all of them.
func (b *testbed) send(rt *rapid.T, packets []oracle.Packet) map[int]bool {
	type sent struct {
		index int
		id    uint16
	}
	probes, ids := map[string][]probe{}, map[string][]sent{}
	result := map[int]bool{}
	for i, p := range packets {
		hops, ok := b.path(p)
		if !ok {
			continue
		}
		result[i] = true
		for _, h := range hops {
			id := b.nextPort()
			r := b.routers[h.router]
			probes[h.router] = append(probes[h.router], probe{id: id, in: h.in(r), payload: packet(p.Source, p.Destination, p.Protocol, id, p.Port)})
			ids[h.router] = append(ids[h.router], sent{i, id})
		}
	}
	for name, r := range b.routers {
		id := b.nextPort()
		sentinel := packet(netip.MustParseAddr("198.51.100.200"), netip.MustParseAddr("198.51.100.201"), model.UDP, id, 9)
		through, err := r.forward(probes[name], probe{id: id, in: r.gateway, payload: sentinel})
		if err != nil {
			rt.Fatal(err)
		}
		for _, s := range ids[name] {
			result[s.index] = result[s.index] && through[s.id]
		}
	}
	return result
}

func (b *testbed) nextPort() uint16 {
	b.port++
	if b.port < 1024 {
		b.port = 1024
	}
	return b.port
}
