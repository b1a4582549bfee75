package pipeline

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/ovstest"
)

// cluster is a bridge with the pipeline, two pods and two peers.
type cluster struct {
	*ovstest.Bridge
	node Node
	pods [2]*model.Attachment
}

func newCluster(t *testing.T, uplink bool) *cluster {
	t.Helper()
	return newClusterOf(t, uplink, func(*Node) {}, func(flows []openflow.Flow) []openflow.Flow { return flows })
}

// newClusterOf makes a cluster of a node and flows that are changed first.
func newClusterOf(t *testing.T, uplink bool, setUp func(*Node), edit func([]openflow.Flow) []openflow.Flow) *cluster {
	t.Helper()
	b := ovstest.NewBridge(t)
	c := &cluster{Bridge: b, node: Node{
		GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort,
		GatewayMAC: b.Config.GatewayMAC, Gateways: testNode().Gateways, PodCIDRs: testNode().PodCIDRs, Userspace: b.Userspace(),
	}}
	// The kernel's own packets would only disturb.
	b.Run("ip", "netns", "exec", b.NS, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
	for i, pod := range testPods() {
		pod.Interface = fmt.Sprintf("v%d", i)
		pod.Addresses = [][]netip.Addr{addrs("10.10.0.2", "fd00:10:10::2"), addrs("10.10.0.3", "fd00:10:10::3")}[i]
		b.Run("ip", "-n", b.NS, "link", "add", pod.Interface, "type", "veth", "peer", "name", pod.Interface+"p")
		b.Run("ip", "-n", b.NS, "link", "set", pod.Interface, "up")
		b.Run("ip", "-n", b.NS, "link", "set", pod.Interface+"p", "up")
		var err error
		if pod.OFPort, err = b.DB.AttachPort(b.Context(), *pod); err != nil {
			t.Fatal(err)
		}
		c.pods[i] = pod
	}
	b.Run("ip", "-n", b.NS, "link", "set", "flx-gw0", "up")
	if uplink {
		c.addUplink(t)
	}
	setUp(&c.node)
	install(t, b, edit(c.flows()))
	return c
}

// flows renders all forwarding flows: of the node, its pods and its peers.
func (c *cluster) flows() []openflow.Flow {
	flows := Base(c.node)
	for _, pod := range c.pods {
		flows = append(flows, Endpoint(c.node, pod)...)
	}
	flows = append(flows, Peer(c.node, testPeer())...)
	flows = append(flows, Peer(c.node, &model.Node{
		Name: "n3", Addresses: addrs("192.168.77.102"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.2.0/24")},
	})...)
	if c.node.Mode != Steer {
		flows = append(flows, Judged()...)
	}
	return flows
}

func uplinkMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, 0x77} }

// addUplink adds the uplink up0 with the node's address. On the userspace datapath up0 is a port of the physical
// bridge, and the address is on that bridge's local port.
func (c *cluster) addUplink(t *testing.T) {
	t.Helper()
	c.Run("ip", "-n", c.NS, "link", "add", "up0", "type", "veth", "peer", "name", "up0p")
	c.Run("ip", "-n", c.NS, "link", "set", "up0", "up")
	c.Run("ip", "-n", c.NS, "link", "set", "up0p", "up")
	if !c.Userspace() {
		c.Run("ip", "-n", c.NS, "link", "set", "up0", "address", uplinkMAC().String())
		c.Run("ip", "-n", c.NS, "addr", "add", "192.168.77.100/24", "dev", "up0")
		// The kernel answers probes to the node's address with errors, which have the probe in them.
		c.Run("ip", "netns", "exec", c.NS, "nft", "table inet quiet { chain out { type filter hook output priority 0; meta l4proto icmp drop; }; }")
		return
	}
	cfg := c.Config
	cfg.Uplink, cfg.UplinkMAC = "up0", uplinkMAC()
	db, err := ovsdb.Open(c.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.EnsureBridge(c.Context()); err != nil {
		t.Fatal(err)
	}
	c.Run("ip", "-n", c.NS, "addr", "add", "192.168.77.100/24", "dev", ovsdb.PhysicalBridge)
	c.Run("ip", "-n", c.NS, "link", "set", ovsdb.PhysicalBridge, "up")
	// The tunnel's end exists when vswitchd has seen the address.
	ovstest.Poll(t, func() error {
		if out := c.Run("ovs-appctl", "-t", c.Daemons.VSwitchdControl(), "tnl/ports/show"); !strings.Contains(out, "genev_sys_6081") {
			return fmt.Errorf("tunnel is not open: %s", out)
		}
		out := c.Run("ovs-appctl", "-t", c.Daemons.VSwitchdControl(), "ovs/route/show")
		if !strings.Contains(out, "192.168.77.100") {
			return fmt.Errorf("no route: %s", out)
		}
		return nil
	})
}

// neighbour gives a peer on the underlay its MAC address.
func (c *cluster) neighbour(peer string, mac net.HardwareAddr) {
	if c.Userspace() {
		c.Run("ovs-appctl", "-t", c.Daemons.VSwitchdControl(), "tnl/neigh/set", ovsdb.PhysicalBridge, peer, mac.String())
		return
	}
	c.Run("ip", "-n", c.NS, "neigh", "replace", peer, "lladdr", mac.String(), "dev", "up0")
}

func TestPodCannotSpoof(t *testing.T) {
	c := newCluster(t, false)
	pod, other, gw := c.pods[0], c.pods[1], openWire(t, c.NS, "flx-gw0")
	sender, victim := openWire(t, c.NS, "v0p"), openWire(t, c.NS, "v1p")
	own, forged := pod.MAC, net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	self, ll := "fd00:10:10::2", linkLocal(pod.MAC).String()
	anywhere := broadcast()

	sent := 0
	for name, frame := range map[string][]byte{
		"IPv4 source of another pod":          ipFrame(anywhere, own, "10.10.0.3", "10.10.0.1"),
		"IPv4 source outside":                 ipFrame(anywhere, own, "8.8.8.8", "10.10.0.1"),
		"IPv6 source of another pod":          ipFrame(anywhere, own, "fd00:10:10::3", "fd00:10:10::1"),
		"IPv6 link-local source":              ipFrame(anywhere, own, ll, "ff02::1"),
		"forged MAC":                          ipFrame(anywhere, forged, "10.10.0.2", "10.10.0.1"),
		"another pod's MAC":                   ipFrame(anywhere, other.MAC, "10.10.0.2", "10.10.0.1"),
		"ARP for another pod":                 arpFrame(2, own, own, "10.10.0.3", "10.10.0.1"),
		"ARP for the gateway":                 arpFrame(2, own, own, "10.10.0.1", "10.10.0.3"),
		"ARP with forged sender MAC":          arpFrame(2, own, forged, "10.10.0.2", "10.10.0.1"),
		"ARP with forged Ethernet source":     arpFrame(1, forged, own, "10.10.0.2", "10.10.0.1"),
		"solicitation from another pod":       ndFrame(135, own, "fd00:10:10::3", "fd00:10:10::1", 1, own),
		"solicitation with forged option":     ndFrame(135, own, self, "fd00:10:10::1", 1, forged),
		"solicitation with two options":       ndFrame(135, own, self, "fd00:10:10::1", 1, forged, own),
		"detection of another's address":      ndFrame(135, own, "::", "fd00:10:10::3", 1),
		"detection with an option":            ndFrame(135, own, "::", self, 1, own),
		"advertisement of another pod":        ndFrame(136, own, self, "fd00:10:10::3", 2, own),
		"advertisement of the gateway":        ndFrame(136, own, self, "fd00:10:10::1", 2, own),
		"advertisement with forged option":    ndFrame(136, own, self, self, 2, forged),
		"advertisement with two options":      ndFrame(136, own, self, self, 2, forged, own),
		"advertisement from another's source": ndFrame(136, own, "fd00:10:10::3", self, 2, own),
		"router advertisement":                ndFrame(134, own, ll, "", 1, own),
		"router advertisement, own address":   ndFrame(134, own, self, "", 1, own),
		"router solicitation":                 ndFrame(133, own, ll, "", 1, own),
		"redirect of IPv4":                    redirectFrame(own, "10.10.0.2", "10.10.0.3"),
		"redirect":                            ndFrame(137, own, ll, self, 2, own),
		"unknown protocol":                    ethernet(anywhere, own, 0x88b5, []byte("felixlike, not IP: sixty-four bytes or so")),
	} {
		t.Run(name, func(t *testing.T) {
			sender.send(frame)
			// Frames of one port are worked off in order: when this one has come, the
			// forged one would have.
			sent++
			last := arpFrame(2, own, own, "10.10.0.2", fmt.Sprintf("10.10.0.%d", 100+sent))
			sender.send(last)
			if gw.await(last) == nil {
				t.Fatal("a right frame did not come through")
			}
			last = arpFrame(1, c.node.GatewayMAC, c.node.GatewayMAC, "10.10.0.1", fmt.Sprintf("10.10.0.%d", 100+sent))
			gw.send(last)
			if victim.await(last) == nil {
				t.Fatal("a frame of the gateway did not come through")
			}
			for port, w := range map[string]*wire{"gateway": gw, "other pod": victim} {
				if w.got(frame) != nil {
					t.Errorf("came out of the port of the %s", port)
				}
			}
		})
	}
}

// TestPodsHaveNoNeighbourButTheGateway: no ARP and no neighbour discovery of a pod comes to another one. A pod that asks for an address
// of its prefix, as pods of earlier versions do, gets the gateway's MAC address.
func TestPodsHaveNoNeighbourButTheGateway(t *testing.T) {
	for _, mode := range []Mode{Steer, Full} {
		t.Run(mode.String(), func(t *testing.T) {
			c := newClusterOf(t, false, func(n *Node) { n.Mode = mode }, func(flows []openflow.Flow) []openflow.Flow { return flows })
			pod, other, host := c.pods[0], c.pods[1], c.node.GatewayMAC
			gw, sender, receiver := openWire(t, c.NS, "flx-gw0"), openWire(t, c.NS, "v0p"), openWire(t, c.NS, "v1p")
			self, ll := "fd00:10:10::2", linkLocal(pod.MAC).String()
			// arp and nd are the answers that pod gets for an address.
			arp := func(target string) []byte {
				reply := arpFrame(2, host, host, target, "10.10.0.2")
				copy(reply[32:], pod.MAC) // arp_tha
				return reply
			}
			nd := func(target, to string, option ...net.HardwareAddr) []byte {
				src, dst := netip.MustParseAddr(target), netip.MustParseAddr(to)
				body := slices.Concat([]byte{135, 0, 0, 0, 0, 0, 0, 0}, dst.AsSlice())
				for _, o := range option {
					body = append(append(body, 1, 1), o...)
				}
				return ethernet(pod.MAC, host, 0x86dd, ip(src, dst, 58, 255, transport(src, dst, 58, body)))
			}
			// right has the checksum, from which that of the answer is made.
			right := func(frame []byte) []byte {
				src, _ := netip.AddrFromSlice(frame[22:38])
				dst, _ := netip.AddrFromSlice(frame[38:54])
				return slices.Concat(frame[:54], transport(src, dst, 58, frame[54:]))
			}
			sent, answers := 0, 0
			for _, q := range []struct {
				name           string
				frame, answer  []byte
				comesToGateway bool
			}{
				{name: "ARP for another pod", frame: arpFrame(1, pod.MAC, pod.MAC, "10.10.0.2", "10.10.0.3"), answer: arp("10.10.0.3")},
				{name: "ARP for an address without a pod", frame: arpFrame(1, pod.MAC, pod.MAC, "10.10.0.2", "10.10.0.77"), answer: arp("10.10.0.77")},
				{name: "ARP for the gateway", frame: arpFrame(1, pod.MAC, pod.MAC, "10.10.0.2", "10.10.0.1"), answer: arp("10.10.0.1")},
				{name: "ARP for its own address", frame: arpFrame(1, pod.MAC, pod.MAC, "10.10.0.2", "10.10.0.2")},
				{name: "ARP for an address beyond the prefix", frame: arpFrame(1, pod.MAC, pod.MAC, "10.10.0.2", "10.77.0.1"), comesToGateway: true},
				{name: "answer to another pod", frame: arpFrame(2, pod.MAC, pod.MAC, "10.10.0.2", "10.10.0.3"), comesToGateway: true},
				{name: "solicitation", frame: right(ndFrame(135, pod.MAC, self, "fd00:10:10::3", 1, pod.MAC)), answer: nd("fd00:10:10::3", self, host)},
				{name: "solicitation, link-local", frame: right(ndFrame(135, pod.MAC, ll, "fd00:10:10::4", 1, pod.MAC)), answer: nd("fd00:10:10::4", ll, host)},
				{name: "solicitation, no option", frame: right(ndFrame(135, pod.MAC, self, "fd00:10:10::5", 1)), answer: nd("fd00:10:10::5", self)},
				{name: "solicitation of the gateway", frame: right(ndFrame(135, pod.MAC, self, "fd00:10:10::1", 1, pod.MAC)), answer: nd("fd00:10:10::1", self, host)},
				{
					name: "solicitation of the gateway, link-local", frame: right(ndFrame(135, pod.MAC, self, linkLocal(host).String(), 1, pod.MAC)),
					answer: nd(linkLocal(host).String(), self, host),
				},
				{name: "solicitation of a link-local address", frame: right(ndFrame(135, pod.MAC, self, linkLocal(other.MAC).String(), 1, pod.MAC))},
				{name: "duplicate detection", frame: right(ndFrame(135, pod.MAC, "::", self, 1))},
				{name: "advertisement to all", frame: right(ndFrame(136, pod.MAC, self, self, 2, pod.MAC))},
				{name: "advertisement to all, link-local", frame: right(ndFrame(136, pod.MAC, ll, ll, 2, pod.MAC))},
				{
					name: "advertisement to the gateway", comesToGateway: true,
					frame: slices.Concat(host, pod.MAC, []byte{0x86, 0xdd}, ip(netip.MustParseAddr(self), netip.MustParseAddr("fd00:10:10::1"), 58, 255,
						slices.Concat([]byte{136, 0, 0, 0, 0x60, 0, 0, 0}, netip.MustParseAddr(self).AsSlice()))),
				},
				{
					name: "advertisement to another pod", frame: slices.Concat(other.MAC, pod.MAC, []byte{0x86, 0xdd}, ip(netip.MustParseAddr(self), netip.MustParseAddr("fd00:10:10::3"), 58, 255,
						slices.Concat([]byte{136, 0, 0, 0, 0x60, 0, 0, 0}, netip.MustParseAddr(self).AsSlice()))),
				},
			} {
				sender.send(q.frame)
				if q.answer != nil && sender.await(q.answer) == nil {
					t.Errorf("%s: no answer with the gateway's MAC address", q.name)
				}
				// Frames of one port are worked off in order.
				sent++
				last := arpFrame(2, pod.MAC, pod.MAC, "10.10.0.2", fmt.Sprintf("10.12.0.%d", sent))
				sender.send(last)
				if gw.await(last) == nil {
					t.Fatalf("%s: the frame after it did not come to the gateway", q.name)
				}
				last = arpFrame(1, host, host, "10.10.0.1", fmt.Sprintf("10.12.0.%d", sent))
				gw.send(last)
				if receiver.await(last) == nil || sender.await(last) == nil {
					t.Fatalf("%s: the gateway's frame after it did not come to the pods", q.name)
				}
				if (gw.got(q.frame) != nil) != q.comesToGateway {
					t.Errorf("%s: at the gateway %v, want %v", q.name, !q.comesToGateway, q.comesToGateway)
				}
				if receiver.got(q.frame) != nil {
					t.Errorf("%s: came to the other pod", q.name)
				}
				if answers += min(1, len(q.answer)); sender.count() != sent+answers {
					t.Fatalf("%s: %d frames came to the pod until now, want %d", q.name, sender.count(), sent+answers)
				}
			}
		})
	}
}

func TestIPGoesToTheGateway(t *testing.T) {
	c := newCluster(t, false)
	pod, other := c.pods[0], c.pods[1]
	gw, sender, receiver := openWire(t, c.NS, "flx-gw0"), openWire(t, c.NS, "v0p"), openWire(t, c.NS, "v1p")
	self := "fd00:10:10::2"
	// IP goes to the gateway with any destination MAC, and nowhere else.
	for name, frame := range map[string][]byte{
		"IPv4 to the other pod's MAC": ipFrame(other.MAC, pod.MAC, "10.10.0.2", "10.10.0.3"),
		"IPv6 to the other pod's MAC": ipFrame(other.MAC, pod.MAC, self, "fd00:10:10::3"),
		"IPv4 to the virtual MAC":     ipFrame(VirtualMAC(), pod.MAC, "10.10.0.2", "10.10.1.2"),
		"IPv4 broadcast":              ipFrame(broadcast(), pod.MAC, "10.10.0.2", "10.10.0.255"),
	} {
		sender.send(frame)
		got := gw.await(frame)
		if got == nil || !bytes.Equal(got[:6], c.node.GatewayMAC) {
			t.Errorf("%s: gateway got % x", name, got)
		}
		if receiver.got(frame) != nil {
			t.Errorf("%s: came out of the other pod's port, past the gateway", name)
		}
	}
	// A packet from the host reaches the pod, and only that one.
	for _, src := range []string{"10.10.0.2", self} {
		dst := map[string]string{"10.10.0.2": "10.10.0.3", self: "fd00:10:10::3"}[src]
		frame := ipFrame(other.MAC, c.node.GatewayMAC, src, dst)
		gw.send(frame)
		if receiver.await(frame) == nil {
			t.Errorf("from the gateway to %s: did not come", dst)
		}
		if sender.got(frame) != nil {
			t.Errorf("from the gateway to %s: came out of another port", dst)
		}
	}
}

func TestARPResponder(t *testing.T) {
	c := newCluster(t, false)
	gw := openWire(t, c.NS, "flx-gw0")
	gw.send(arpFrame(1, c.node.GatewayMAC, c.node.GatewayMAC, "10.10.0.1", "10.10.1.1"))
	reply := arpFrame(2, VirtualMAC(), VirtualMAC(), "10.10.1.1", "10.10.0.1")
	copy(reply, c.node.GatewayMAC)      // Ethernet destination
	copy(reply[32:], c.node.GatewayMAC) // arp_tha
	if got := gw.await(reply); got == nil || !bytes.Equal(got[:6], c.node.GatewayMAC) {
		t.Errorf("no reply with the virtual MAC; got % x", got)
	}
}

func TestTunnelGuard(t *testing.T) {
	c := newCluster(t, true)
	underlay, gw, pod := openWire(t, c.NS, "up0p"), openWire(t, c.NS, "flx-gw0"), openWire(t, c.NS, "v0p")
	far := net.HardwareAddr{2, 0, 0, 0, 0, 0x99}
	inner := func(src, dst string) []byte { return ipFrame(VirtualMAC(), far, src, dst) }
	const n2, n3, nobody = "192.168.77.101", "192.168.77.102", "192.168.77.200"
	sent := 0
	for _, test := range []struct {
		name, outer string
		inner       []byte
		pass        bool
	}{
		{"peer's pod", n2, inner("10.10.1.5", "10.10.0.2"), true},
		{"peer's pod, IPv6", n2, inner("fd00:10:10:1::5", "fd00:10:10::2"), true},
		{"peer's own address", n2, inner(n2, "10.10.0.2"), true},
		{"peer's own IPv6 address", n2, inner("fd77::101", "fd00:10:10::2"), true},
		{"other peer's pod", n3, inner("10.10.2.5", "10.10.0.2"), true},
		{"from no node", nobody, inner("10.10.1.6", "10.10.0.2"), false},
		{"from no node, IPv6", nobody, inner("fd00:10:10:1::6", "fd00:10:10::2"), false},
		{"from no node, its own address", nobody, inner(nobody, "10.10.0.2"), false},
		{"another peer's pod", n2, inner("10.10.2.6", "10.10.0.2"), false},
		{"another peer's address", n2, inner(n3, "10.10.0.2"), false},
		{"our own pod", n2, inner("10.10.0.3", "10.10.0.2"), false},
		{"ARP", n2, arpFrame(2, far, far, "10.10.1.1", "10.10.0.1"), false},
		{"advertisement", n2, ndFrame(136, far, "fd00:10:10:1::5", "fd00:10:10:1::5", 2, far), false},
		{"router advertisement", n2, ndFrame(134, far, "fd00:10:10:1::5", "", 1, far), false},
	} {
		sent++
		t.Run(test.name, func(t *testing.T) {
			underlay.send(geneve(uplinkMAC(), far, test.outer, "192.168.77.100", test.inner))
			if test.pass {
				got := gw.await(test.inner)
				if got == nil || !bytes.Equal(got[:6], c.node.GatewayMAC) {
					t.Errorf("gateway got % x", got)
				}
				return
			}
			last := inner("10.10.1.7", fmt.Sprintf("10.10.0.%d", 100+sent))
			underlay.send(geneve(uplinkMAC(), far, n2, "192.168.77.100", last))
			if gw.await(last) == nil {
				t.Fatal("a right packet did not come through")
			}
			if gw.got(test.inner) != nil {
				t.Error("came out of the gateway port")
			}
			if pod.got(test.inner) != nil {
				t.Error("came out of the pod's port")
			}
		})
	}
}

// TestIntoTheTunnel checks the packets that leave by the uplink.
func TestIntoTheTunnel(t *testing.T) {
	c := newCluster(t, true)
	underlay, gw, pod := openWire(t, c.NS, "up0p"), openWire(t, c.NS, "flx-gw0"), openWire(t, c.NS, "v0p")
	far := net.HardwareAddr{2, 0, 0, 0, 0, 0x99}
	for _, peer := range []string{"192.168.77.101", "192.168.77.102"} {
		c.neighbour(peer, far)
	}
	for _, test := range []struct{ src, dst, outer string }{
		{"10.10.0.2", "10.10.1.5", "192.168.77.101"},
		{"fd00:10:10::2", "fd00:10:10:1::5", "192.168.77.101"},
		{"10.10.0.2", "192.168.77.101", "192.168.77.101"},
		{"10.10.0.2", "10.10.2.5", "192.168.77.102"},
	} {
		frame := ipFrame(VirtualMAC(), c.node.GatewayMAC, test.src, test.dst)
		gw.send(frame)
		ovstest.Poll(t, func() error {
			if !underlay.carries(frame, netip.MustParseAddr(test.outer)) {
				return fmt.Errorf("%s -> %s did not leave for %s", test.src, test.dst, test.outer)
			}
			return nil
		})
	}
	// ARP of the gateway port is flooded, but not into the tunnel.
	flooded := arpFrame(1, c.node.GatewayMAC, c.node.GatewayMAC, "10.10.0.1", "10.10.0.77")
	gw.send(flooded)
	if pod.await(flooded) == nil {
		t.Fatal("ARP did not reach the pod")
	}
	if underlay.carries(flooded, netip.Addr{}) {
		t.Error("ARP left by the uplink")
	}
}

// carries reports whether a frame came in that holds another one, TTL and all,
// and goes to an outer address (any, if that is zero).
func (w *wire) carries(inner []byte, outer netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.frames {
		if !bytes.Contains(f, inner[6:]) || len(f) < 34 {
			continue
		}
		if !outer.IsValid() || bytes.Equal(f[30:34], outer.AsSlice()) {
			return true
		}
	}
	return false
}
