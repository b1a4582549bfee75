package managers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

func routedNode(name string, n int, addresses ...string) *model.Node {
	node := &model.Node{Name: name, PodCIDRs: []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", 10+n/256, n%256)), netip.MustParsePrefix(fmt.Sprintf("fd00:10:0:%x::/64", n)),
	}}
	for _, a := range addresses {
		node.Addresses = append(node.Addresses, netip.MustParseAddr(a))
	}
	return node
}

// clusterOfThree has this node, a peer in its subnet, one behind a router and one in the subnet without IPv6.
func clusterOfThree() []model.Update {
	return []model.Update{
		model.NodeUpdate{Node: routedNode("n1", 1, "192.168.50.1", "fd00:50::1")},
		model.NodeUpdate{Node: routedNode("n2", 2, "192.168.50.2", "fd00:50::2")},
		model.NodeUpdate{Node: routedNode("n3", 3, "192.168.60.3", "fd00:60::3")},
		model.NodeUpdate{Node: routedNode("n4", 4, "192.168.50.4")},
		model.HostAddressesUpdate{
			Addresses: []netip.Addr{netip.MustParseAddr("192.168.50.1"), netip.MustParseAddr("fd00:50::1")},
			Subnets:   []netip.Prefix{netip.MustParsePrefix("192.168.50.1/24"), netip.MustParsePrefix("fd00:50::1/64")},
		},
	}
}

func give(m Manager, all ...model.Update) {
	for _, u := range all {
		m.OnUpdate(u)
	}
	m.CompleteDeferredWork()
}

type lastState struct{ hostnet.State }

func (l *lastState) SetState(s hostnet.State) { l.State = s }

// TestModes: routes and flows of the tunnel agree in every mode, for every peer and family.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		mode model.TrafficMode
		// routed and left by peer, and the peers with flows of the tunnel by family.
		routed, left     map[string]string
		tunnel4, tunnel6 []string
		problems         int
	}{
		{model.Encap, map[string]string{}, map[string]string{}, []string{"n2", "n3", "n4"}, []string{"n2", "n3", "n4"}, 0},
		{model.Hybrid, map[string]string{"n2": "46", "n4": "4"}, map[string]string{}, []string{"n3"}, []string{"n3", "n4"}, 0},
		{model.NoEncap, map[string]string{"n2": "46", "n4": "4"}, map[string]string{"n3": "46", "n4": "6"}, nil, nil, 1},
	} {
		t.Run(c.mode.String(), func(t *testing.T) {
			host, flows := &lastState{}, flowGroups{}
			routes := NewRouteManager("n1", c.mode, hostnet.State{Gateway: "gw"}, host)
			give(routes, clusterOfThree()...)
			for i, name := range []string{"n2", "n3", "n4"} {
				text := func(all []model.Family) (s string) {
					for _, f := range all {
						s += f.String()
					}
					return s
				}
				if p := host.Peers[i]; text(p.Routed) != c.routed[name] || text(p.Left) != c.left[name] {
					t.Errorf("%s: routed %s, left %s", name, text(p.Routed), text(p.Left))
				}
			}
			if all := routes.Problems(); len(all) != c.problems {
				t.Errorf("problems %v", all)
			}
			give(NewTunnelManager("n1", c.mode, pipeline.Node{GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6)}, flows), clusterOfThree()...)
			for i, name := range []string{"n2", "n3", "n4"} {
				text := flows["peer "+name]
				for pods, tunnelled := range map[string][]string{fmt.Sprintf("nw_dst=10.10.%d.0/24", i+2): c.tunnel4, fmt.Sprintf("ipv6_dst=fd00:10:0:%d::/64", i+2): c.tunnel6} {
					if strings.Contains(text, pods) != slices.Contains(tunnelled, name) {
						t.Errorf("%s, flow to %s: %v\n%s", name, pods, strings.Contains(text, pods), text)
					}
					if from := strings.Replace(pods, "dst", "src", 1); strings.Contains(text, from) != slices.Contains(tunnelled, name) {
						t.Errorf("%s, flow from %s: %v", name, from, strings.Contains(text, from))
					}
				}
				// No pod sends packets of a tunnel to a peer in any mode.
				if !strings.Contains(text, "6081") {
					t.Errorf("%s: pods may send to the peer's end of the tunnel", name)
				}
			}
		})
	}
}

// TestTunnelOfOneFamily: a tunnel has both ends in one family. Without one, no packet is taken from a peer or sent to it.
func TestTunnelOfOneFamily(t *testing.T) {
	both, only6 := []string{"192.168.50.1", "fd00:50::1"}, []string{"fd00:50::2"}
	for _, c := range []struct {
		self, peer []string
		field      string
		ends       Ends
	}{
		{both, []string{"192.168.50.2"}, "tun_src=192.168.50.2", Ends{netip.MustParseAddr("192.168.50.2"), netip.MustParseAddr("192.168.50.1")}},
		{[]string{"fd00:50::1"}, only6, "tun_ipv6_src=fd00:50::2", Ends{netip.MustParseAddr("fd00:50::2"), netip.MustParseAddr("fd00:50::1")}},
		{both, only6, "", Ends{Own: netip.MustParseAddr("192.168.50.1")}},
		{[]string{"fd00:50::1"}, []string{"192.168.50.2", "fd00:50::2"}, "", Ends{Own: netip.MustParseAddr("fd00:50::1")}},
	} {
		flows, self, peer := flowGroups{}, routedNode("n1", 1, c.self...), routedNode("n2", 2, c.peer...)
		give(NewTunnelManager("n1", model.Encap, pipeline.Node{GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6)}, flows), model.NodeUpdate{Node: self}, model.NodeUpdate{Node: peer})
		text := flows["peer n2"]
		if c.field != "" && !strings.Contains(text, c.field) || c.field == "" && strings.Contains(text, "tun_") || !strings.Contains(text, "6081") {
			t.Errorf("%v to %v:\n%s", c.self, c.peer, text)
		}
		if got := EndsOf("n1", []*model.Node{self, peer}); got != c.ends {
			t.Errorf("%v to %v: ends %v, want %v", c.self, c.peer, got, c.ends)
		}
	}
}

type hopsOf struct{ peers []netip.Addr }

func (h *hopsOf) SetPeers(all []netip.Addr) { h.peers = slices.Clone(all) }

// hop returns the hop of a peer that is its own neighbour.
func hop(address, iface string, last byte) model.Hop {
	a := netip.MustParseAddr(address)
	return model.Hop{Address: a, Interface: iface, Neighbour: a, MAC: model.MAC{2, 0, 0, 0, 0, last}}
}

// via returns the hop of a peer behind a router.
func via(router string, h model.Hop) model.Hop {
	h.Neighbour = netip.MustParseAddr(router)
	return h
}

// TestSenders: who is believed for which pods, and from where.
func TestSenders(t *testing.T) {
	r := rules.NewRenderer("gw", rules.NFTablesNameLength).Routed(true)
	for _, c := range []struct {
		mode    model.TrafficMode
		peers   int
		members string
	}{
		{model.Hybrid, 3, "senders-4-eth0: 10.10.2.0/24 by 02:00:00:00:00:02; senders-6-eth0: fd00:10:0:2::/64 by 02:00:00:00:00:02"},
		{model.NoEncap, 5, "senders-4-eth0: 10.10.2.0/24 by 02:00:00:00:00:02, 10.10.3.0/24 by 02:00:00:00:00:fe; senders-6-eth0: fd00:10:0:2::/64 by 02:00:00:00:00:02"},
	} {
		h, hops := &held{chains: map[string]tables.Chain{}, sets: map[string]map[model.Member]bool{}}, &hopsOf{}
		m := NewSenderManager("n1", c.mode, r, h, h, hops)
		give(m, clusterOfThree()...)
		if len(hops.peers) != c.peers {
			t.Errorf("%s: asks for %v", c.mode, hops.peers)
		}
		if len(h.chains) != 0 {
			t.Errorf("%s: the table is programmed before the senders are known", c.mode)
		}
		give(m, model.HopsUpdate{Hops: []model.Hop{hop("192.168.50.2", "eth0", 2), via("192.168.50.254", hop("192.168.60.3", "eth0", 0xfe)), hop("fd00:50::2", "eth0", 2)}})
		if got := h.senders(); got != c.members {
			t.Errorf("%s: %s\nwant %s", c.mode, got, c.members)
		}
		// The peer answers from another interface, and the old sets go.
		give(m, model.HopsUpdate{Hops: []model.Hop{hop("192.168.50.2", "bond0.5", 2)}})
		if got := h.senders(); !strings.Contains(got, "10.10.2.0/24 by") || strings.Contains(got, "eth0") {
			t.Errorf("%s, another interface: %s", c.mode, got)
		}
		give(m, model.NodeRemove{Name: "n2"})
		if got := h.senders(); strings.Contains(got, "by") {
			t.Errorf("%s, without the peer: %s", c.mode, got)
		}
		chain := h.chains[rules.ChainSenders]
		if last := chain.Rules[len(chain.Rules)-1]; last.Action != (tables.Drop{}) {
			t.Errorf("%s: the chain ends in %v", c.mode, last)
		}
	}
}

// TestSameMAC: a peer in the subnet is believed only if it is its own neighbour, and no other peer there has its MAC
// address. Peers behind one router share the router's.
func TestSameMAC(t *testing.T) {
	h := &held{chains: map[string]tables.Chain{}, sets: map[string]map[model.Member]bool{}}
	m := NewSenderManager("n1", model.NoEncap, rules.NewRenderer("gw", rules.NFTablesNameLength).Routed(true), h, h, &hopsOf{})
	give(m, clusterOfThree()...)
	router := func(h model.Hop) model.Hop { return via("192.168.50.254", h) }
	for _, c := range []struct {
		name, members string
		problems      []string
		hops          []model.Hop
	}{
		{
			"each its own", "senders-4-eth0: 10.10.2.0/24 by 02:00:00:00:00:02, 10.10.3.0/24 by 02:00:00:00:00:fe, 10.10.4.0/24 by 02:00:00:00:00:04", nil,
			[]model.Hop{hop("192.168.50.2", "eth0", 2), hop("192.168.50.4", "eth0", 4), router(hop("192.168.60.3", "eth0", 0xfe))},
		},
		{
			"one MAC address for the subnet", "senders-4-eth0: 10.10.3.0/24 by 02:00:00:00:00:fe",
			[]string{"n2, n4", "n2, n4"},
			[]model.Hop{hop("192.168.50.2", "eth0", 2), hop("192.168.50.4", "eth0", 2), router(hop("192.168.60.3", "eth0", 0xfe))},
		},
		{
			"by a router", "senders-4-eth0: 10.10.4.0/24 by 02:00:00:00:00:04",
			[]string{"192.168.50.254"},
			[]model.Hop{router(hop("192.168.50.2", "eth0", 0xfe)), hop("192.168.50.4", "eth0", 4)},
		},
		{
			"both families of one peer, and another interface",
			"senders-4-eth0: 10.10.2.0/24 by 02:00:00:00:00:02; senders-4-eth1: 10.10.4.0/24 by 02:00:00:00:00:02; senders-6-eth0: fd00:10:0:2::/64 by 02:00:00:00:00:02", nil,
			[]model.Hop{hop("192.168.50.2", "eth0", 2), hop("fd00:50::2", "eth0", 2), hop("192.168.50.4", "eth1", 2)},
		},
	} {
		give(m, model.HopsUpdate{Hops: c.hops})
		if got := h.senders(); got != c.members {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.members)
		}
		problems := m.Problems()
		if len(problems) != len(c.problems) {
			t.Fatalf("%s: problems %v", c.name, problems)
		}
		for i, part := range c.problems {
			if !strings.Contains(problems[i].Reason, part) {
				t.Errorf("%s: problem %v, want %s", c.name, problems[i], part)
			}
		}
	}
}

// TestPeersWithoutPods: packets to a peer that has no pods of the family do not keep the pod's address.
func TestPeersWithoutPods(t *testing.T) {
	h := &held{chains: map[string]tables.Chain{}, sets: map[string]map[model.Member]bool{}}
	peers := newPeerNetworks(h)
	n := routedNode("n2", 2, "192.168.50.2", "fd00:50::2")
	n.PodCIDRs = n.PodCIDRs[:1]
	peers.update("n2", n)
	if n4, n6 := len(h.sets[rules.PeersSet(model.IPv4)]), len(h.sets[rules.PeersSet(model.IPv6)]); n4 != 2 || n6 != 0 {
		t.Errorf("%d members of IPv4, %d of IPv6", n4, n6)
	}
}

// countedSets counts the members that are written.
type countedSets struct {
	*held
	added, removed int
}

func (c *countedSets) AddMembers(set string, all []model.Member) {
	c.added += len(all)
	c.held.AddMembers(set, all)
}

func (c *countedSets) RemoveMembers(set string, all []model.Member) {
	c.removed += len(all)
	c.held.RemoveMembers(set, all)
}

// TestThousandSenders: a peer's change costs the members of that peer.
func TestThousandSenders(t *testing.T) {
	h := &held{chains: map[string]tables.Chain{}, sets: map[string]map[model.Member]bool{}}
	sets := &countedSets{held: h}
	m := NewSenderManager("n1", model.Hybrid, rules.NewRenderer("gw", rules.NFTablesNameLength).Routed(true), h, sets, &hopsOf{})
	updates := []model.Update{
		model.NodeUpdate{Node: routedNode("n1", 0, "172.16.0.1")},
		model.HostAddressesUpdate{Subnets: []netip.Prefix{netip.MustParsePrefix("172.16.0.1/16")}},
	}
	var hops []model.Hop
	for n := 1; n <= 1000; n++ {
		a := fmt.Sprintf("172.16.%d.%d", n/200+1, n%200+1)
		updates = append(updates, model.NodeUpdate{Node: routedNode(fmt.Sprintf("p%d", n), n, a)})
		one := hop(a, "eth0", byte(n))
		one.MAC[4] = byte(n >> 8)
		hops = append(hops, one)
	}
	slices.SortFunc(hops, func(a, b model.Hop) int { return a.Address.Compare(b.Address) })
	give(m, append(updates, model.HopsUpdate{Hops: hops})...)
	if n := len(h.sets["senders-4-eth0"]); n != 1000 {
		t.Fatalf("%d members", n)
	}
	if n := len(h.chains[rules.ChainSenders].Rules); n != 7 {
		t.Errorf("%d rules for 1,000 peers", n)
	}
	hops = slices.Clone(hops)
	hops[0].MAC[0] = 6
	sets.added, sets.removed = 0, 0
	began := time.Now()
	give(m, model.HopsUpdate{Hops: hops})
	if sets.added != 1 || sets.removed != 1 {
		t.Errorf("one change of 1,000 peers adds %d members and removes %d", sets.added, sets.removed)
	}
	t.Logf("one change of 1,000 peers in %s", time.Since(began))
}

// senders lists the members of the sets of senders.
func (h *held) senders() string {
	var all []string
	for name, members := range h.sets {
		var texts []string
		for m := range members {
			texts = append(texts, m.String())
		}
		slices.Sort(texts)
		if strings.HasPrefix(name, "senders-") && len(texts) > 0 {
			all = append(all, name+": "+strings.Join(texts, ", "))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// TestEndsOfAreKept compares the ends that the manager keeps with those of all nodes, and asserts that a pass
// without a change of the first peer does not list the nodes.
func TestEndsOfAreKept(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m, nodes := NewTunnelPortManager("n5", 6081, newRecorder(), newRecorder()), map[string]*model.Node{}
	for i := range 2000 {
		n := random.IntN(10)
		node := routedNode(fmt.Sprint("n", n), n+1, fmt.Sprintf("192.168.50.%d", 1+random.IntN(200)))
		switch random.IntN(4) {
		case 0:
			delete(nodes, node.Name)
			m.OnUpdate(model.NodeRemove{Name: node.Name})
		case 1:
			node.Addresses = []netip.Addr{netip.MustParseAddr("fd00:50::1")}
			fallthrough
		default:
			nodes[node.Name] = node
			m.OnUpdate(model.NodeUpdate{Node: node})
		}
		if random.IntN(2) == 0 {
			continue
		}
		m.CompleteDeferredWork()
		if got, want := m.Ends(), EndsOf("n5", slices.Collect(maps.Values(nodes))); got != want {
			t.Fatalf("step %d: ends %v, want %v", i, got, want)
		}
	}
	m.OnUpdate(model.NodeUpdate{Node: routedNode("n0", 1, "192.168.50.1")})
	m.OnUpdate(model.NodeUpdate{Node: routedNode("n5", 6, "192.168.50.6")})
	m.CompleteDeferredWork()
	last := routedNode("n9", 10, "192.168.50.9")
	if n := testing.AllocsPerRun(10, func() {
		m.move(last.Name)
		m.CompleteDeferredWork()
	}); n > 0 {
		t.Errorf("a pass allocates %v times: it lists the nodes", n)
	}
}
