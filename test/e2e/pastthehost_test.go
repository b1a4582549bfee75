package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// atGateway returns the number of packets that have crossed a node's gateway port, either way.
func atGateway(t *testing.T, n *lab.Node) uint64 {
	t.Helper()
	var packets uint64
	if err := n.Namespace().Do(func() error {
		link, err := netlink.LinkByName(model.GatewayPort)
		if err != nil {
			return err
		}
		s := link.Attrs().Statistics
		packets = s.RxPackets + s.TxPackets
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return packets
}

// fewPackets bounds the packets at a gateway port while established connections skip the host:
// SYNs and their answers, there and back, and what the host itself sends.
const fewPackets = 20

// TestEstablishedSkipTheHost counts packets at the gateway ports of two nodes: with offload, of
// streams within a node and between the two, only the first packets cross them; without it, all
// do. The agents restart with the one setting and the other under the streams.
func TestEstablishedSkipTheHost(t *testing.T) {
	if os.Getenv(datapathEnv) != ovsdb.DatapathSystem {
		t.Skip("offload needs the kernel's datapath: see test/vm")
	}
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
		t.Run(backend, func(t *testing.T) {
			establishedSkipTheHost(t, newLabWith(t, lab.Config{Backend: backend, Offload: config.OffloadAuto}))
		})
	}
}

func establishedSkipTheHost(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes))
	nodes := []*lab.Node{l.Node("node1"), l.Node("node2")}
	for _, f := range model.Families() {
		a := l.Pod(pod("a"))
		serveUDP(t, a.Namespace(), netip.AddrPortFrom(a.Address(f), udpPort))
	}
	streams := talkers(t, l, [2]string{"b", "a"}, [2]string{"c", "a"})
	for i, setting := range []string{config.OffloadAuto, config.OffloadOff, config.OffloadAuto} {
		for _, n := range nodes {
			if i > 0 {
				restartWithOffload(t, n, setting)
			}
			s, err := n.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if s.Offload == nil || s.Offload.Setting != setting || s.Offload.Active != (setting == config.OffloadAuto) {
				t.Errorf("%s: status of offload: %+v", n.Name(), s.Offload)
			}
		}
		countAtGateways(t, l, nodes, streams, setting == config.OffloadAuto)
	}
	for _, k := range streams {
		k.mu.Lock()
		if k.err != nil {
			t.Errorf("%s: %v", k.name, k.err)
		}
		k.mu.Unlock()
	}
}

func restartWithOffload(t *testing.T, n *lab.Node, setting string) {
	t.Helper()
	if err := n.StopAgent(); err != nil {
		t.Fatal(err)
	}
	n.Settings().Offload = setting
	if err := n.StartAgent(); err != nil {
		t.Fatal(err)
	}
	if err := n.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestRulesOfOthersSeeAllPackets: with offload, a rule of another program that counts packets of established
// connections gets to see them, under streams that go on. Those of proxies end nothing. When the rule is gone,
// packets skip the host again.
func TestRulesOfOthersSeeAllPackets(t *testing.T) {
	if os.Getenv(datapathEnv) != ovsdb.DatapathSystem {
		t.Skip("offload needs the kernel's datapath: see test/vm")
	}
	l := newLabWith(t, lab.Config{Offload: config.OffloadAuto})
	set(t, l, state(t, threeNodes))
	services := []service{{number: 1, name: "a", endpoint: "a", port: pushPort}}
	for _, mode := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
		runProxyFor(t, l, proxyModes()[mode], services)
	}
	n := l.Node("node1")
	a := l.Pod(pod("a"))
	for _, f := range model.Families() {
		serveUDP(t, a.Namespace(), netip.AddrPortFrom(a.Address(f), udpPort))
	}
	streams := talkers(t, l, [2]string{"b", "a"}, [2]string{"c", "a"})
	goOn := func() {
		for _, k := range streams {
			_, before := k.last()
			eventually.True(t, "echoes of "+k.name, func() bool { _, n := k.last(); return n >= before+20 })
		}
	}
	active := func(want bool) {
		t.Helper()
		eventually.True(t, fmt.Sprintf("offload active: %v", want), func() bool {
			s, err := n.Status(t.Context())
			return err == nil && s.Offload != nil && s.Offload.Active == want
		})
		goOn()
		before := atGateway(t, n)
		goOn()
		if packets := atGateway(t, n) - before; (packets <= fewPackets) != want {
			t.Errorf("offload active %v: %d packets at the gateway port", want, packets)
		}
	}
	active(true)
	feed(t, n, "table inet wall {\nchain way {\ntype filter hook forward priority 5;\nct state established counter\n}\n}\n", "nft", "-f", "-")
	active(false)
	if s, err := n.Status(t.Context()); err != nil || !strings.Contains(s.Offload.Why, "chain way of table inet wall: counter") {
		t.Errorf("status: %+v, %v", s.Offload, err)
	}
	feed(t, n, "", "nft", "delete", "table", "inet", "wall")
	active(true)
	for _, k := range streams {
		k.mu.Lock()
		if k.err != nil {
			t.Errorf("%s: %v", k.name, k.err)
		}
		k.mu.Unlock()
	}
}

// countAtGateways counts while the streams go on, and while a long stream is opened and sends.
func countAtGateways(t *testing.T, l *lab.Lab, nodes []*lab.Node, streams []*talker, skips bool) {
	t.Helper()
	const echoes = 50
	for _, k := range streams {
		k.wait(t)
	}
	for what, send := range map[string]func(){
		"streams": func() {
			for _, k := range streams {
				_, before := k.last()
				eventually.True(t, "echoes of "+k.name, func() bool { _, n := k.last(); return n >= before+echoes })
			}
		},
		"long stream": func() {
			transfer(t, l, "b", "a", model.IPv4)
			transfer(t, l, "c", "a", model.IPv6)
		},
	} {
		var before []uint64
		for _, n := range nodes {
			before = append(before, atGateway(t, n))
		}
		send()
		for i, n := range nodes {
			packets := atGateway(t, n) - before[i]
			text := fmt.Sprintf("%s, offload %v: %d packets at the gateway port of %s", what, skips, packets, n.Name())
			t.Log(text)
			if skips && packets > fewPackets || !skips && packets <= 2*fewPackets {
				t.Error(text)
			}
		}
	}
}
