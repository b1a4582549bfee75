package backend

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/tablestest"
)

// BenchmarkLayouts measures the reference workload, 1,000 pods and 1,000 policies of ten rules, in each layout of
// backend nftables: the CPU time of the managers and of the apply for one changed rule, and for one member. The
// engine's time does not count.
func BenchmarkLayouts(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("not root")
	}
	profile, err := workload.FindProfile(workload.W1)
	if err != nil {
		b.Fatal(err)
	}
	w := workload.New(profile)
	for _, layout := range []string{config.LayoutRules, config.LayoutMaps} {
		b.Run(layout, func(b *testing.B) {
			ns, err := scratchNamespace()
			if err != nil {
				b.Fatal(err)
			}
			defer ns.Close()
			node := newNFTables(Config{Name: config.NFTables, Layout: layout, NetNS: int(ns.Fd()), Node: workload.Node}, inScratch)
			defer func() { _ = node.Close() }()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			engine := policy.New(workload.Node)
			program := func() time.Duration {
				updates := engine.Flush()
				began := threadCPU(b)
				for _, m := range node.Stage().Managers {
					for _, u := range updates {
						m.OnUpdate(u)
					}
				}
				for _, m := range node.Stage().Managers {
					m.CompleteDeferredWork()
				}
				if _, err := node.Stage().Apply(b.Context()); err != nil {
					b.Fatal(err)
				}
				return threadCPU(b) - began
			}
			for _, a := range w.Attachments() {
				engine.SetLocalAddresses(a.Pod, a.Addresses)
				for _, m := range node.Stage().Managers {
					m.OnUpdate(model.AttachmentUpdate{Attachment: &a})
				}
			}
			for _, e := range w.Events() {
				switch e := e.(type) {
				case datastore.NodeSet:
					engine.SetNode(e.Node)
				case datastore.NamespaceSet:
					engine.SetNamespace(e.Namespace)
				case datastore.PodSet:
					engine.SetPod(e.Pod)
				case datastore.NetworkPolicySet:
					engine.SetNetworkPolicy(e.Policy)
				}
			}
			first := program()
			program()
			var rule, member time.Duration
			n := 0
			for b.Loop() {
				changed, _ := w.ChangedPolicy(n)
				engine.SetNetworkPolicy(changed)
				rule += program()
				engine.SetPod(w.Member(n))
				member += program()
				n++
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(first.Microseconds())/1000, "first-load-ms")
			b.ReportMetric(float64(rule.Microseconds())/float64(n)/1000, "ms/rule")
			b.ReportMetric(float64(member.Microseconds())/float64(n)/1000, "ms/member")
		})
	}
}

func threadCPU(b *testing.B) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// BenchmarkPacketsByLayout measures the CPU time of a packet that policy denies, by the number of rules of its pod. It is the
// median of packets of which each passes all rules. Pods take turns, and the thread's own time is counted.
func BenchmarkPacketsByLayout(b *testing.B) {
	sizes := []int{1, 16, 64, 256, 1024, 4096}
	for _, layout := range []string{config.LayoutRules, config.LayoutMaps} {
		b.Run(layout, func(b *testing.B) {
			path := layoutPath(b)
			node := newNFTables(Config{Name: config.NFTables, Layout: layout, NetNS: path.Router.FD, Node: "node1"}, inScratch)
			defer func() { _ = node.Close() }()
			peers := model.Group{ID: "apeers", Kind: model.Addresses}
			updates := []model.Update{
				model.NodeUpdate{Node: &model.Node{Name: "node1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)}}},
				model.GroupUpdate{Group: peers, Added: []model.Member{model.AddressMember(netip.MustParseAddr("10.2.0.9"))}},
			}
			senders := make([]netip.Addr, len(sizes))
			for i, size := range sizes {
				senders[i] = netip.AddrFrom4([4]byte{10, 1, 0, byte(10 + i)})
				id, pod := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: fmt.Sprint(size)}, model.PodID{Namespace: "x", Name: fmt.Sprint(size)}
				p := &model.Policy{ID: id}
				for port := range uint16(size) {
					p.Egress = append(p.Egress, model.Rule{Action: model.Allow, Peers: []model.GroupID{peers.ID}, Ports: []model.PortRange{{Protocol: model.UDP, First: 10000 + port, Last: 10000 + port}}})
				}
				updates = append(updates, model.PolicyUpdate{Policy: p}, model.EndpointUpdate{Endpoint: &model.Endpoint{ID: pod, Egress: model.Applied{NetworkPolicies: []model.PolicyID{id}}}},
					model.AttachmentUpdate{Attachment: &model.Attachment{Pod: pod, Addresses: senders[i : i+1]}})
			}
			programUpdates(b, node, updates)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			costs := make([][]time.Duration, len(sizes))
			for b.Loop() {
				for i, from := range senders {
					for range 20 {
						began := threadCPU(b)
						path.Send(b, model.UDP, from, netip.MustParseAddr("10.2.0.9"), 5000)
						costs[i] = append(costs[i], threadCPU(b)-began)
					}
				}
			}
			b.ReportMetric(0, "ns/op")
			for i, size := range sizes {
				slices.Sort(costs[i])
				b.ReportMetric(float64(costs[i][len(costs[i])/2]), fmt.Sprintf("ns/%d-rules", size))
			}
		})
	}
}

// layoutPath is a path with a node's gateway port.
func layoutPath(t testing.TB) *tablestest.Path {
	t.Helper()
	p := tablestest.NewPath(t, "nft")
	p.Router.Run(t, "sh", "-ec", "ip link set r1 down; ip link set r1 name "+model.GatewayPort+"; ip link set "+model.GatewayPort+` up
		ip route add 10.1.0.0/16 via 192.168.1.2`)
	return p
}

// programUpdates has a backend program updates.
func programUpdates(t testing.TB, node Backend, updates []model.Update) {
	t.Helper()
	for _, m := range node.Stage().Managers {
		for _, u := range updates {
			m.OnUpdate(u)
		}
	}
	for _, m := range node.Stage().Managers {
		m.CompleteDeferredWork()
	}
	if a, err := node.Stage().Apply(t.Context()); err != nil || len(a.Refused) > 0 {
		t.Fatalf("%v, refused %v", err, a.Refused)
	}
}

// layoutUpdates are pod x/a, whose policy allows UDP port 4000 to the network 10.2.0.0/16, and UDP port 7 to all. With many,
// it allows 64 other ports as well.
func layoutUpdates(many bool) []model.Update {
	updates := closedPod("10.1.0.2", false) // also the address of Passes
	p := *updates[1].(model.PolicyUpdate).Policy
	outside := model.Group{ID: "noutside", Kind: model.Networks}
	p.Egress = []model.Rule{
		{Action: model.Allow, Peers: []model.GroupID{outside.ID}, Ports: []model.PortRange{{Protocol: model.UDP, First: 4000, Last: 4000}}},
		{Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.UDP, First: tablestest.Sentinel, Last: tablestest.Sentinel}}},
	}
	if many {
		p.Egress = append(p.Egress, model.Rule{Action: model.Allow, Peers: []model.GroupID{outside.ID}, Ports: []model.PortRange{{Protocol: model.UDP, First: 10000, Last: 10015}}})
	}
	return append(updates, model.PolicyUpdate{Policy: &p},
		model.GroupUpdate{Group: outside, Added: []model.Member{{Prefix: netip.MustParsePrefix("10.2.0.0/16")}}})
}

// objectNames are the names of the chains, sets and maps in the kernel.
func objectNames(t *testing.T, b *nftablesBackend) (all []string) {
	t.Helper()
	s, err := b.table.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Chains {
		all = append(all, c.Name)
	}
	for _, s := range s.Sets {
		all = append(all, s.Name)
	}
	for _, m := range s.Maps {
		all = append(all, m.Name)
	}
	return all
}

// TestLayoutChanges: agents with one layout after the other, and with more grants than the bound, let no packet through that
// policy denies, at any moment of the change. Afterwards each layout judges alike. Beyond the bound, the table has the objects of
// the layout rules and no others.
func TestLayoutChanges(t *testing.T) {
	path := layoutPath(t)
	pod, outside := netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.2.0.9")
	const bound = 10
	program := func(node Backend, many bool) {
		t.Helper()
		programUpdates(t, node, layoutUpdates(many))
	}
	start := func(layout string) *nftablesBackend {
		node := newNFTables(Config{Name: config.NFTables, Layout: layout, GrantsBound: bound, NetNS: path.Router.FD, Node: "node1"}, inScratch)
		t.Cleanup(func() { _ = node.Close() })
		return node
	}
	judged := func(many bool) {
		t.Helper()
		for port, want := range map[uint16]bool{4000: true, 5000: false, 10005: many} {
			if got := path.Passes(t, model.UDP, pod, outside, port); got != want {
				t.Errorf("a packet to port %d passes: %v, want %v", port, got, want)
			}
		}
	}
	program(start(config.LayoutRules), false)
	judged(false)
	stop := path.Flood(t, pod, outside, 5000)
	for range 20 {
		maps := start(config.LayoutMaps)
		program(maps, false)
		if l := maps.Layout(); l.FellBack != nil || l.InForce != config.LayoutMaps || l.Maps.Grants == 0 || l.Maps.Bound != bound || l.Maps.Pods == 0 {
			t.Fatalf("%+v, %+v", l, l.Maps)
		}
		program(maps, true)
		if err := maps.Layout().FellBack; err == nil || err.Error() != "more than 10 grants; 18 of them for the egress of pods with networkpolicy/x/closed" {
			t.Fatalf("fell back: %v", err)
		}
		if l := maps.Layout(); l.InForce != config.LayoutRules || l.Maps != nil {
			t.Fatalf("%+v", l)
		}
		left := objectNames(t, maps)
		program(start(config.LayoutMaps), false)
		inRules := start(config.LayoutRules)
		program(inRules, false)
		if want := objectNames(t, inRules); !slices.Equal(left, want) {
			t.Fatalf("the table has %q after the change to rules because of the bound, want %q", left, want)
		}
	}
	sent, arrived := stop()
	if sent == 0 || arrived > 0 {
		t.Errorf("of %d denied packets %d arrived", sent, arrived)
	}
	judged(false)
	maps := start(config.LayoutMaps)
	program(maps, false)
	judged(false)
	program(maps, true)
	judged(true)
}
