package backend

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ipsets/kernel"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// firewall is a backend on the router of a path, where the link to the sender
// takes the place of the gateway port: the sender's addresses are those of pods.
type firewall struct {
	path     *tablestest.Path
	managers []managers.Manager
	apply    func() error
	observer Observer
	renderer *rules.Renderer
	counters func(ctx context.Context, add func(of rules.Counter, packets uint64)) error
	// open lets another program remove only the rules that judge packets.
	open []string
	// shape lets another program mark all packets that leave, without a mask.
	shape []string
	// flush lets another program remove everything.
	flush []string
	// pass adds the chain of iptables that accepts in filter what policy allowed in mangle.
	pass func()
}

const pods = "10.1.0.0/16"

func firewalls() map[string]func(t *testing.T) *firewall {
	return map[string]func(t *testing.T) *firewall{
		config.NFTables: newNFTablesFirewall,
		config.IPTablesLegacy: func(t *testing.T) *firewall {
			return newIPTablesFirewall(t, iptables.Legacy)
		},
		config.IPTablesNFT: func(t *testing.T) *firewall {
			return newIPTablesFirewall(t, iptables.NFT)
		},
	}
}

// newFirewall returns the packet path of a node. Connections stay tracked without our rules,
// because other rules use connection tracking too, as those of a proxy for Services do.
func newFirewall(t *testing.T, tools ...string) *firewall {
	t.Helper()
	f := &firewall{path: tablestest.NewPath(t, append(tools, "nft")...)}
	f.path.Router.Feed(t, "table inet other { chain forward { type filter hook forward priority 10; ct state new counter; }; }", "nft", "-f", "-")
	return f
}

func newNFTablesFirewall(t *testing.T) *firewall {
	f := newFirewall(t, "iptables-nft")
	table := nftables.New(nftables.Options{NetNS: f.path.Router.FD, Guard: rules.Guard("r1")})
	t.Cleanup(func() { _ = table.Close() })
	r := rules.NewRenderer("r1", rules.NFTablesNameLength)
	f.managers = []managers.Manager{
		managers.NewDeniedManager(table, r), managers.NewStaticManager("node1", r, table, table), managers.NewPolicyManager("node1", r, table),
		managers.NewEndpointManager(r, table, table, managers.NewMapDispatcher(table)),
	}
	f.apply = func() error {
		table.Invalidate()
		_, err := table.Apply(t.Context())
		return err
	}
	f.observer = &nftablesBackend{common: common{renderer: r}, table: table}
	f.counters = func(ctx context.Context, add func(of rules.Counter, packets uint64)) error {
		return countDrops(ctx, table, r, add)
	}
	f.renderer = r
	f.open = []string{"nft", "flush", "chain", "inet", "felixlike", "forward"}
	f.shape = []string{"iptables-nft", "-t", "mangle", "-A", "POSTROUTING", "-j", "MARK", "--set-mark", "5"}
	f.flush = []string{"nft", "delete", "table", "inet", "felixlike"}
	return f
}

func newIPTablesFirewall(t *testing.T, v iptables.Variant) *firewall {
	tool := "iptables-" + v.String()
	f := newFirewall(t, tool, "ipset")
	x := &xtables{
		table: iptables.New(iptables.Options{Variant: v, NetNS: f.path.Router.FD}),
		sets:  kernel.New(kernel.Options{NetNS: f.path.Router.FD}),
	}
	t.Cleanup(func() { _ = x.sets.Close() })
	r := rules.NewRenderer("r1", rules.IPTablesNameLength)
	chains := managers.NewTreeDispatcher(r, x.table)
	f.managers = []managers.Manager{
		managers.NewDeniedManager(chains, r), managers.NewStaticManager("node1", r, chains, x.sets), managers.NewPolicyManager("node1", r, chains),
		managers.NewEndpointManager(r, chains, x.sets, chains),
	}
	f.apply = func() error {
		x.table.Invalidate()
		x.sets.Invalidate()
		_, err := x.apply(t.Context())
		return err
	}
	b := &iptablesBackend{common: common{renderer: r}, xtables: *x, at: Config{Variant: v, NetNS: f.path.Router.FD}}
	f.observer, f.counters, f.renderer = b, b.counters, r
	f.pass = func() { chains.UpdateChain(r.Node().Passed()) }
	f.open = []string{tool, "-t", "mangle", "-F", "FORWARD"}
	f.shape = []string{tool, "-t", "mangle", "-A", "POSTROUTING", "-j", "MARK", "--set-mark", "5"}
	f.flush = []string{"sh", "-c", tool + "-save | grep '^[*:C]' | grep -v ':flx' | " + tool + "-restore"}
	return f
}

func (f *firewall) update(updates ...model.Update) {
	for _, u := range updates {
		for _, m := range f.managers {
			m.OnUpdate(u)
		}
	}
	for _, m := range f.managers {
		m.CompleteDeferredWork()
	}
}

func (f *firewall) program(t *testing.T) {
	t.Helper()
	if err := f.apply(); err != nil {
		t.Fatal(err)
	}
}

// closedPod makes a pod with the address that may neither send nor, if inbound,
// be sent to.
func closedPod(address string, inbound bool) []model.Update {
	pod, id := model.PodID{Namespace: "x", Name: "a"}, model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "closed"}
	e := &model.Endpoint{ID: pod, Egress: model.Applied{NetworkPolicies: []model.PolicyID{id}}}
	if inbound {
		e.Egress, e.Ingress = e.Ingress, e.Egress
	}
	return []model.Update{
		model.NodeUpdate{Node: &model.Node{Name: "node1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)}}},
		model.PolicyUpdate{Policy: &model.Policy{ID: id}},
		model.EndpointUpdate{Endpoint: e},
		model.AttachmentUpdate{Attachment: &model.Attachment{Pod: pod, Addresses: []netip.Addr{netip.MustParseAddr(address)}}},
	}
}

// dialogue is a UDP flow between a pod and an outside peer.
type dialogue struct {
	pod, outside *net.UDPConn
	// sent numbers the datagrams: a late one is not taken for the next.
	sent byte
}

func newDialogue(t *testing.T, p *tablestest.Path, port int) *dialogue {
	t.Helper()
	d := &dialogue{
		pod:     listenIn(t, p.Sender, &net.UDPAddr{IP: net.IPv4(10, 1, 0, 5), Port: port}),
		outside: listenIn(t, p.Receiver, &net.UDPAddr{IP: net.IPv4(10, 2, 0, 9), Port: port}),
	}
	return d
}

func listenIn(t *testing.T, ns tablestest.Namespace, at *net.UDPAddr) *net.UDPConn {
	t.Helper()
	type result struct {
		c   *net.UDPConn
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		if err := unix.Setns(ns.FD, unix.CLONE_NEWNET); err != nil {
			done <- result{nil, err}
			return
		}
		lc := net.ListenConfig{}
		c, err := lc.ListenPacket(context.Background(), "udp4", at.String())
		if err != nil {
			done <- result{nil, err}
			return
		}
		done <- result{c.(*net.UDPConn), nil}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _ = r.c.Close() })
	return r.c
}

// Time-outs of the wait for a datagram. The wait for one that has to pass is longer, because it may be late on a busy
// machine. A packet that policy drops never arrives.
const (
	shortly  = 300 * time.Millisecond
	patience = 15 * time.Second
)

// out fails the test if a datagram from the pod does not go as wanted, in if one to
// it does not.
func (d *dialogue) out(t *testing.T, what string, want bool) {
	t.Helper()
	d.send(t, d.pod, d.outside, what, want)
}

func (d *dialogue) in(t *testing.T, what string, want bool) {
	t.Helper()
	d.send(t, d.outside, d.pod, what, want)
}

func (d *dialogue) send(t *testing.T, from, to *net.UDPConn, what string, want bool) {
	t.Helper()
	d.sent++
	_, err := from.WriteToUDP([]byte{d.sent}, to.LocalAddr().(*net.UDPAddr))
	wait := shortly
	if want {
		wait = patience
	}
	_ = to.SetReadDeadline(time.Now().Add(wait))
	for got := make([]byte, 1); err == nil && got[0] != d.sent; {
		_, _, err = to.ReadFromUDP(got)
	}
	if passes := err == nil; passes != want {
		t.Errorf("%s: passes %v, want %v", what, passes, want)
	}
}
