package carry

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// kernelNode is a node with the kernel's datapath and without a bridge: the kernel
// tracks both zones. The calling thread stays in its namespace.
func kernelNode(t *testing.T) (*Carrier, *conntrack.Kernel) {
	t.Helper()
	requireTools(t)
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{node4 + "/32", gateway4 + "/32"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel keeps labels once a rule or Open vSwitch asks for them.
	command(t, "nft", "add table inet t; add chain inet t c { type filter hook output priority 0; }; add rule inet t c ct label set 64")
	k, err := conntrack.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	c := New(Options{Node: "n1", DatapathType: "system"})
	for _, n := range []*model.Node{
		{Name: "n1", Addresses: addrs(node4), PodCIDRs: prefixes("10.10.0.0/24", "fd00:10:10::/64")},
		{Name: "n2", Addresses: addrs("172.16.9.3"), PodCIDRs: prefixes("10.10.1.0/24")},
	} {
		c.OnUpdate(model.NodeUpdate{Node: n})
	}
	return c, k
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// connection makes one of the kernel, "src:port>dst:port", with another
// destination or source in its answers where they are translated.
func connection(protocol uint8, src, dst, answers, to string) conntrack.Connection {
	o, r := ends(protocol, src, dst), ends(protocol, answers, to)
	k := conntrack.Connection{Original: o, Reply: r, Replied: true, Timeout: time.Hour}
	switch protocol {
	case unix.IPPROTO_TCP:
		k.State = conntrack.StateEstablished
	case unix.IPPROTO_SCTP:
		k.State, k.VTags = 4, [2]uint32{0x12, 0x34} // 4: established
	}
	return k
}

func ends(protocol uint8, src, dst string) conntrack.Tuple {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	return conntrack.Tuple{Protocol: protocol, Src: s.Addr(), Dst: d.Addr(), SrcPort: s.Port(), DstPort: d.Port()}
}

func TestHowTheBridgeSeesConnections(t *testing.T) {
	c, _ := kernelNode(t)
	s, err := c.look()
	if err != nil {
		t.Fatal(err)
	}
	const tcp = unix.IPPROTO_TCP
	type seen struct {
		src, dst string
		gateway  bool
	}
	for name, test := range map[string]struct {
		k    conntrack.Connection
		own  bool
		want []seen
	}{
		"pod to pod": {
			connection(tcp, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5"), false,
			[]seen{{"10.10.0.2:5", "10.10.0.3:80", false}},
		},
		"pod to pod of a peer": {
			connection(tcp, "10.10.0.2:5", "10.10.1.3:80", "10.10.1.3:80", "10.10.0.2:5"), false,
			[]seen{{"10.10.0.2:5", "10.10.1.3:80", false}},
		},
		"pod of a peer to pod": {
			connection(tcp, "10.10.1.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.1.2:5"), false,
			[]seen{{"10.10.1.2:5", "10.10.0.3:80", false}},
		},
		"peer to pod": {
			connection(tcp, "172.16.9.3:5", "10.10.0.3:80", "10.10.0.3:80", "172.16.9.3:5"), false,
			[]seen{{"172.16.9.3:5", "10.10.0.3:80", false}},
		},
		"pod to Service": {
			connection(tcp, "10.10.0.2:5", "10.96.0.10:80", "10.10.0.3:8080", "10.10.0.2:5"), false,
			[]seen{{"10.10.0.2:5", "10.96.0.10:80", false}, {"10.10.0.2:5", "10.10.0.3:8080", true}},
		},
		"pod to Service, only the port changes": {
			connection(tcp, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:8080", "10.10.0.2:5"), false,
			[]seen{{"10.10.0.2:5", "10.10.0.3:80", false}, {"10.10.0.2:5", "10.10.0.3:8080", true}},
		},
		"pod to itself by Service": {
			connection(tcp, "10.10.0.2:5", "10.96.0.10:80", "10.10.0.2:8080", "169.254.20.20:5"), false,
			[]seen{{"10.10.0.2:5", "10.96.0.10:80", false}, {"169.254.20.20:5", "10.10.0.2:8080", true}},
		},
		"pod to Service outside": {
			connection(tcp, "10.10.0.2:5", "10.96.0.10:80", "203.0.113.9:8080", node4+":99"), false,
			[]seen{{"10.10.0.2:5", "10.96.0.10:80", false}},
		},
		"pod to outside, hidden": {
			connection(tcp, "10.10.0.2:5", "203.0.113.9:80", "203.0.113.9:80", node4+":99"), false,
			[]seen{{"10.10.0.2:5", "203.0.113.9:80", false}},
		},
		"outside to node port, hidden": {
			connection(tcp, "203.0.113.9:5", node4+":30080", "10.10.0.3:80", gateway4+":99"), false,
			[]seen{{gateway4 + ":99", "10.10.0.3:80", true}},
		},
		"outside to pod": {
			connection(tcp, "203.0.113.9:5", "10.10.0.3:80", "10.10.0.3:80", "203.0.113.9:5"), false,
			[]seen{{"203.0.113.9:5", "10.10.0.3:80", true}},
		},
		"node to pod": {
			connection(tcp, gateway4+":5", "10.10.0.3:80", "10.10.0.3:80", gateway4+":5"), true,
			[]seen{{gateway4 + ":5", "10.10.0.3:80", true}},
		},
		"node to Service": {
			connection(tcp, node4+":5", "10.96.0.10:80", "10.10.0.3:8080", gateway4+":99"), true,
			[]seen{{gateway4 + ":99", "10.10.0.3:8080", true}},
		},
		"pod to node": {
			connection(tcp, "10.10.0.2:5", node4+":80", node4+":80", "10.10.0.2:5"), true,
			[]seen{{"10.10.0.2:5", node4 + ":80", false}},
		},
		"pod to Service on the node": {
			connection(tcp, "10.10.0.2:5", "10.96.0.1:443", node4+":6443", "10.10.0.2:5"), true,
			[]seen{{"10.10.0.2:5", "10.96.0.1:443", false}},
		},
		"node to peer":    {connection(tcp, node4+":5", "172.16.9.3:80", "172.16.9.3:80", node4+":5"), false, []seen{{node4 + ":5", "172.16.9.3:80", true}}},
		"node to outside": {connection(tcp, node4+":5", "203.0.113.9:80", "203.0.113.9:80", node4+":5"), false, nil},
	} {
		if got := s.ownTraffic(&test.k); got != test.own {
			t.Errorf("%s: between the node and a pod: %v", name, got)
		}
		var got []seen
		for _, x := range s.bridgeTuples(&test.k) {
			got = append(got, seen{netip.AddrPortFrom(x.Src, x.SrcPort).String(), netip.AddrPortFrom(x.Dst, x.DstPort).String(), x.gateway})
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestHowTheBridgeSeesRoutedPeers: without a tunnel to a peer, the bridge sees its packets come from the gateway port, and
// does not see those of the host to it.
func TestHowTheBridgeSeesRoutedPeers(t *testing.T) {
	c, _ := kernelNode(t)
	c.view.mode = model.Hybrid
	c.OnUpdate(model.HostAddressesUpdate{Subnets: []netip.Prefix{netip.MustParsePrefix(node4 + "/24")}})
	c.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "far", Addresses: []netip.Addr{netip.MustParseAddr("172.16.8.3")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.2.0/24")}}})
	s, err := c.look()
	if err != nil {
		t.Fatal(err)
	}
	const tcp = unix.IPPROTO_TCP
	for name, test := range map[string]struct {
		k      conntrack.Connection
		want   []bridgeTuple
		within bool
	}{
		"pod to routed pod":     {connection(tcp, "10.10.0.2:5", "10.10.1.3:80", "10.10.1.3:80", "10.10.0.2:5"), []bridgeTuple{{ends(tcp, "10.10.0.2:5", "10.10.1.3:80"), false}}, false},
		"routed pod to pod":     {connection(tcp, "10.10.1.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.1.2:5"), []bridgeTuple{{ends(tcp, "10.10.1.2:5", "10.10.0.3:80"), true}}, false},
		"routed peer to pod":    {connection(tcp, "172.16.9.3:5", "10.10.0.3:80", "10.10.0.3:80", "172.16.9.3:5"), []bridgeTuple{{ends(tcp, "172.16.9.3:5", "10.10.0.3:80"), true}}, false},
		"pod to Service there":  {connection(tcp, "10.10.0.2:5", "10.96.0.10:80", "10.10.1.3:8080", "10.10.0.2:5"), []bridgeTuple{{ends(tcp, "10.10.0.2:5", "10.96.0.10:80"), false}}, false},
		"node to routed pod":    {connection(tcp, node4+":5", "10.10.1.3:80", "10.10.1.3:80", node4+":5"), nil, false},
		"pod to tunnelled pod":  {connection(tcp, "10.10.0.2:5", "10.10.2.3:80", "10.10.2.3:80", "10.10.0.2:5"), []bridgeTuple{{ends(tcp, "10.10.0.2:5", "10.10.2.3:80"), false}}, true},
		"tunnelled peer to pod": {connection(tcp, "172.16.8.3:5", "10.10.0.3:80", "10.10.0.3:80", "172.16.8.3:5"), []bridgeTuple{{ends(tcp, "172.16.8.3:5", "10.10.0.3:80"), false}}, true},
		"pod to pod":            {connection(tcp, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5"), []bridgeTuple{{ends(tcp, "10.10.0.2:5", "10.10.0.3:80"), false}}, true},
	} {
		if got := s.bridgeTuples(&test.k); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if got := s.within(&test.k); got != test.within {
			t.Errorf("%s: does not go through the host: %v", name, got)
		}
	}
}

func TestKernelDatapath(t *testing.T) {
	c, k := kernelNode(t)
	kinds := []conntrack.Connection{
		connection(unix.IPPROTO_TCP, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5"),
		connection(unix.IPPROTO_UDP, "10.10.0.2:5", "10.96.0.10:80", "10.10.0.3:8080", "10.10.0.2:5"),
		connection(unix.IPPROTO_SCTP, "[fd00:10:10::2]:5", "[fd00:10:10::3]:80", "[fd00:10:10::3]:80", "[fd00:10:10::2]:5"),
	}
	denied := connection(unix.IPPROTO_TCP, "10.10.0.4:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.4:5")
	var puts []conntrack.Put
	for _, one := range kinds {
		one.Mark = rules.MarkAllowed | 0x4000
		puts = append(puts, conntrack.Put{Connection: one, New: true, MarkMask: one.Mark})
	}
	puts = append(puts, conntrack.Put{Connection: denied, New: true})
	if n, err := k.Write(puts); err != nil || n != len(puts) {
		t.Fatal(n, err)
	}
	call := func(f func(context.Context) (Result, error), want Result) {
		t.Helper()
		if r, err := f(t.Context()); err != nil || r != want {
			t.Errorf("%+v %v, want %+v", r, err, want)
		}
	}
	call(c.ToSwitch, Result{Allowed: 4, Written: 4})
	call(c.ToSwitch, Result{Allowed: 4})
	inZone := map[conntrack.Tuple]conntrack.Connection{}
	z := kernelZone{kernel: k}
	known, err := z.dump(t.Context())
	for _, one := range known {
		inZone[one.Original] = one
	}
	if err != nil || len(inZone) != 4 {
		t.Fatalf("%+v %v", known, err)
	}
	for at, mark := range map[conntrack.Tuple]uint32{
		kinds[0].Original: 0, kinds[1].Original: 0, kinds[1].Reply.Reverse(): pipeline.GatewayMark, kinds[2].Original: 0,
	} {
		one, found := inZone[at]
		if !found || !isAllowed(&one) || one.Mark != mark || !one.Replied || one.Translated() {
			t.Errorf("%s: %v %+v", at, found, one)
		}
	}
	if sctp := inZone[kinds[2].Original]; sctp.State != 4 || sctp.VTags != kinds[2].VTags {
		t.Errorf("%+v", sctp)
	}

	// Back: the kernel keeps only the translated connection, and another program
	// removed its mark.
	translated := conntrack.Put{Connection: kinds[1], MarkMask: rules.MarkAllowed}
	if _, err := k.Write([]conntrack.Put{translated}); err != nil {
		t.Fatal(err)
	}
	if n, err := k.Delete([]conntrack.Connection{kinds[0], kinds[2], denied}); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	call(c.ToKernel, Result{Allowed: 4, Written: 3})
	call(c.ToKernel, Result{Allowed: 4})
	var carried []conntrack.Connection
	if err := k.Dump(func(one conntrack.Connection) {
		if one.Zone == 0 {
			carried = append(carried, one)
		}
	}); err != nil || len(carried) != 3 {
		t.Fatalf("%+v %v", carried, err)
	}
	for _, one := range carried {
		want := rules.MarkAllowed
		if one.Translated() {
			want |= 0x4000
		}
		if one.Mark != want || !one.Replied || one.Liberal != (one.Original.Protocol == unix.IPPROTO_TCP) {
			t.Errorf("%+v", one)
		}
	}

	moved := kinds[0]
	moved.Zone = pipeline.MovedZone
	if _, err := k.Write([]conntrack.Put{{Connection: moved, New: true}}); err != nil {
		t.Fatal(err)
	}
	forgotten, err := c.ForgetConnections(t.Context(), addrs("10.10.0.2"))
	if err != nil || forgotten != 4 {
		t.Errorf("forgot %d, %v; want 3, and one with another port", forgotten, err)
	}
	if known, err := z.dump(t.Context()); err != nil || len(known) != 1 {
		t.Errorf("left in the zone: %+v %v", known, err)
	}
}
