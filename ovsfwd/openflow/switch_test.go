package openflow_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/ovstest"
)

func mac(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }

// owner is that of the test's flows.
const owner = 0xf11c

// fixed renders the same flows each time.
func fixed(flows []openflow.Flow) func() []openflow.Flow {
	return func() []openflow.Flow { return flows }
}

func to(table uint8) []openflow.Action { return []openflow.Action{openflow.GotoTable(table)} }

// numbered makes n flows of table 10.
func numbered(n int) []openflow.Flow { return numberedFrom(0, n) }

func numberedFrom(first, n int) []openflow.Flow {
	flows := make([]openflow.Flow, n)
	for i := range flows {
		number := first + i
		addr := netip.AddrFrom4([4]byte{10, byte(number >> 16), byte(number >> 8), byte(number)})
		flows[i] = openflow.Flow{Table: 10, Priority: 200, Match: openflow.IPv4().Addr(openflow.IPv4Src, addr), Actions: to(20)}
	}
	return flows
}

func dial(t *testing.T, b *ovstest.Bridge) *openflow.Conn {
	t.Helper()
	c, err := openflow.Dial(b.Context(), b.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func apply(t *testing.T, b *ovstest.Bridge, table *openflow.FlowTable, want openflow.Result) {
	t.Helper()
	got, err := table.Apply(b.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(openflow.Result{}, "FullRead"), cmpopts.IgnoreFields(tables.Repair{}, "Noticed")); diff != "" {
		t.Fatal(diff)
	}
}

func connected(t *testing.T, b *ovstest.Bridge) *openflow.FlowTable {
	t.Helper()
	table := openflow.NewFlowTable(owner, 1)
	table.Connect(dial(t, b))
	return table
}

func texts(flows []openflow.Flow) []string {
	out := make([]string, len(flows))
	for i, f := range flows {
		out[i] = f.String()
	}
	slices.Sort(out)
	return out
}

// everything has each match and action once.
func everything() []openflow.Flow {
	peer, v6 := netip.MustParseAddr("192.168.77.101"), netip.MustParseAddr("fd00::2")
	return []openflow.Flow{
		{Table: 0, Priority: 0},
		{Table: 0, Priority: 200, Match: openflow.Any().InPort(1).TunnelSource(peer), Actions: []openflow.Action{
			openflow.SetBits(openflow.Reg0, 0, 0xffff), openflow.SetBits(openflow.Reg0, 1<<19, 1<<19), openflow.GotoTable(10),
		}},
		{Table: 10, Priority: 1, Match: openflow.IPv4().MAC(openflow.EthSrc, mac(1)).Prefix(openflow.IPv4Src, netip.MustParsePrefix("10.1.2.3/16")), Actions: to(20)},
		{Table: 10, Priority: 1, Match: openflow.IPv4().MAC(openflow.EthDst, mac(1)).Addr(openflow.IPv4Dst, peer), Actions: to(20)},
		{Table: 10, Priority: 1, Match: openflow.IPv6().Addr(openflow.IPv6Src, v6), Actions: to(20)},
		{Table: 10, Priority: 1, Match: openflow.IPv6().Prefix(openflow.IPv6Dst, netip.MustParsePrefix("fd00::/64")), Actions: to(20)},
		{Table: 10, Priority: 2, Match: openflow.ICMPv6(134)},
		{Table: 10, Priority: 2, Match: openflow.NeighbourDiscovery(135).Addr(openflow.NDTarget, v6).MAC(openflow.NDSll, mac(0)), Actions: to(20)},
		{Table: 10, Priority: 2, Match: openflow.NeighbourDiscovery(136).MAC(openflow.NDTll, mac(1)), Actions: to(20)},
		{Table: 10, Priority: 2, Match: openflow.ARP().Addr(openflow.ARPSpa, peer).MAC(openflow.ARPSha, mac(1)), Actions: to(20)},
		{Table: 20, Priority: 2, Match: openflow.ARP().Addr(openflow.ARPTpa, peer).ARPOperation(1), Actions: []openflow.Action{
			openflow.Copy(openflow.EthSrc, openflow.EthDst), openflow.SetMAC(openflow.EthSrc, mac(3)),
			openflow.SetARPOperation(2), openflow.Copy(openflow.ARPSha, openflow.ARPTha), openflow.SetMAC(openflow.ARPSha, mac(3)),
			openflow.Copy(openflow.ARPSpa, openflow.ARPTpa), openflow.SetAddr(openflow.ARPSpa, peer), openflow.OutputInPort(),
		}},
		{Table: 20, Priority: 1, Match: openflow.ARP(), Actions: []openflow.Action{openflow.OutputNormal()}},
		{Table: 30, Priority: 1, Match: openflow.IPv4().Bits(openflow.Reg0, 1, 0xffff), Actions: []openflow.Action{
			openflow.SetMAC(openflow.EthDst, mac(4)), openflow.SetRegister(openflow.Reg1, 2), openflow.SetAddr(openflow.TunDst, peer), openflow.DecTTL(), openflow.GotoTable(110),
		}},
		{Table: 40, Priority: 1, Match: openflow.Any().Masked(openflow.TunID, []byte{0, 0, 0, 0, 0, 0, 1, 2}, nil), Actions: []openflow.Action{
			openflow.CopyLow(openflow.TunID, openflow.Reg0, 32), openflow.CopyLow(openflow.Reg1, openflow.TunID, 24), openflow.GotoTable(110),
		}},
		{Table: 110, Priority: 1, Match: openflow.IPv6().Bits(openflow.Reg0, 1<<16, 1<<16), Actions: []openflow.Action{openflow.OutputRegister(openflow.Reg1)}},
	}
}

func TestFlowsReadBackAsWritten(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	flows := everything()
	table.SetFlows("all", fixed(flows))
	apply(t, b, table, openflow.Result{Messages: len(flows), Added: len(flows)})
	if diff := cmp.Diff(texts(flows), b.Flows()); diff != "" {
		t.Error(diff)
	}
	known(t, b, flows)
}

// known asserts that flows which are read back equal the flows that were sent.
func known(t *testing.T, b *ovstest.Bridge, flows []openflow.Flow) {
	t.Helper()
	again := connected(t, b)
	again.SetFlows("all", fixed(flows))
	apply(t, b, again, openflow.Result{})
}

func TestOnlyDifferencesAreSent(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	table.SetFlows("a", fixed(numbered(3)))
	apply(t, b, table, openflow.Result{Messages: 3, Added: 3})
	apply(t, b, table, openflow.Result{})
	table.SetFlows("a", fixed(numbered(3)))
	apply(t, b, table, openflow.Result{})

	changed := numbered(3)
	changed[1].Actions = nil
	table.SetFlows("a", fixed(changed))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
	table.SetFlows("b", fixed(numbered(1))) // the same as one of a's
	apply(t, b, table, openflow.Result{})
	table.RemoveFlows("a")
	apply(t, b, table, openflow.Result{Messages: 2, Deleted: 2})
	if diff := cmp.Diff(texts(numbered(1)), b.Flows()); diff != "" {
		t.Error(diff)
	}
}

func TestRestartReconcilesByCookie(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	table.SetFlows("a", fixed(numbered(10)))
	apply(t, b, table, openflow.Result{Messages: 10, Added: 10})
	foreign := "table=5,priority=7,in_port=9 actions=drop"
	b.Ofctl("add-flow", "cookie=0x1234,"+foreign)

	same := connected(t, b)
	same.SetFlows("a", fixed(numbered(10)))
	apply(t, b, same, openflow.Result{})

	// Two are stale, one has other actions and is replaced.
	less := numbered(8)
	less[7].Actions = nil
	fewer := connected(t, b)
	fewer.SetFlows("a", fixed(less))
	apply(t, b, fewer, openflow.Result{Messages: 3, Added: 1, Deleted: 2})
	want := append(texts(less), foreign)
	slices.Sort(want)
	if diff := cmp.Diff(want, b.Flows()); diff != "" {
		t.Error(diff)
	}
}

func TestNewPipelineVersionReplacesAll(t *testing.T) {
	b := ovstest.NewBridge(t)
	old := connected(t, b)
	old.SetFlows("a", fixed(numbered(5)))
	apply(t, b, old, openflow.Result{Messages: 5, Added: 5})
	next := openflow.NewFlowTable(owner, 2)
	next.Connect(dial(t, b))
	next.SetFlows("a", fixed(numbered(5)))
	apply(t, b, next, openflow.Result{Messages: 5, Added: 5})
	if diff := cmp.Diff(texts(numbered(5)), b.Flows()); diff != "" {
		t.Error(diff)
	}
}

func TestOneBadFlowRefusesTheBundle(t *testing.T) {
	for name, bad := range map[string]openflow.Flow{
		"jump back":            {Table: 30, Priority: 1, Match: openflow.IPv4(), Actions: to(10)},
		"missing prerequisite": {Table: 30, Priority: 1, Match: openflow.IPv4().Addr(openflow.NDTarget, netip.MustParseAddr("fd00::1")), Actions: to(70)},
		"goto not last":        {Table: 30, Priority: 1, Match: openflow.IPv4(), Actions: []openflow.Action{openflow.GotoTable(40), openflow.DecTTL()}},
		"short MAC":            {Table: 30, Priority: 1, Match: openflow.Any().MAC(openflow.EthSrc, net.HardwareAddr{1}), Actions: to(70)},
	} {
		t.Run(name, func(t *testing.T) {
			b := ovstest.NewBridge(t)
			table := connected(t, b)
			table.SetFlows("good", fixed(numbered(50)))
			table.SetFlows("bad one", fixed([]openflow.Flow{bad}))
			_, err := table.Apply(b.Context())
			var refused *openflow.BundleError
			if !errors.As(err, &refused) || len(refused.Refusals) != 1 {
				t.Fatalf("got %v", err)
			}
			if r := refused.Refusals[0]; r.Mod.Key != "bad one" || r.Mod.Flow.String() != bad.String() {
				t.Errorf("names %s: %s", r.Mod.Key, r.Mod)
			}
			if !strings.Contains(err.Error(), bad.String()) {
				t.Errorf("error does not show the flow: %v", err)
			}
			if flows := b.Flows(); len(flows) != 0 {
				t.Errorf("%d flows are installed", len(flows))
			}
			// The connection and the table stay usable; without the bad group all goes in.
			table.RemoveFlows("bad one")
			apply(t, b, table, openflow.Result{Messages: 50, Added: 50})
		})
	}
}

func TestConflictNamesBoth(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	table.SetFlows("a", fixed(numbered(1)))
	other := numbered(1)
	other[0].Actions = nil
	table.SetFlows("b", fixed(other))
	_, err := table.Apply(b.Context())
	var conflict *openflow.ConflictError
	if !errors.As(err, &conflict) || conflict.Keys != [2]string{"a", "b"} {
		t.Fatalf("got %v", err)
	}
	for _, f := range []openflow.Flow{numbered(1)[0], other[0]} {
		if !strings.Contains(err.Error(), f.String()) {
			t.Errorf("%v does not show %s", err, f)
		}
	}
	table.RemoveFlows("b")
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
}

func TestManyFlows(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn := dial(t, b)
	table := openflow.NewFlowTable(owner, 1)
	table.Connect(conn)
	table.SetFlows("a", fixed(numbered(5000)))
	apply(t, b, table, openflow.Result{Messages: 5000, Added: 5000})
	got, err := conn.Dump(b.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	cookies := map[uint64]bool{}
	for _, f := range got {
		if f.Table != 10 || f.Priority != 200 {
			t.Fatalf("read back %+v", f)
		}
		cookies[f.Cookie] = true
	}
	if len(got) != 5000 || len(cookies) != 5000 {
		t.Errorf("read back %d flows with %d cookies", len(got), len(cookies))
	}
	again := connected(t, b)
	again.SetFlows("a", fixed(numbered(5000)))
	apply(t, b, again, openflow.Result{})
}

func TestManyRefusals(t *testing.T) {
	b := ovstest.NewBridge(t)
	flows := numbered(5000)
	for i := range flows {
		flows[i].Actions = to(5)
	}
	table := connected(t, b)
	table.SetFlows("a", fixed(flows))
	_, err := table.Apply(b.Context())
	var refused *openflow.BundleError
	if !errors.As(err, &refused) || len(refused.Refusals) != 5000 {
		t.Fatalf("got %.200v", err)
	}
	if len(err.Error()) > 2000 {
		t.Errorf("error of %d characters", len(err.Error()))
	}
}

func TestVSwitchdRestart(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn := dial(t, b)
	table := openflow.NewFlowTable(owner, 1)
	table.Connect(conn)
	table.SetFlows("a", fixed(numbered(20)))
	apply(t, b, table, openflow.Result{Messages: 20, Added: 20})
	if err := b.Daemons.KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-conn.Done():
	case <-time.After(2 * time.Second):
		t.Fatal("lost connection not noticed")
	}
	if conn.Err() == nil {
		t.Error("no reason")
	}
	if _, err := table.Apply(b.Context()); err == nil {
		t.Error("applied over a lost connection")
	}
	if err := b.Daemons.StartVSwitchd(b.Context()); err != nil {
		t.Fatal(err)
	}
	var again *openflow.Conn
	ovstest.Poll(t, func() (err error) {
		again, err = openflow.Dial(b.Context(), b.Management())
		return err
	})
	defer func() { _ = again.Close() }()
	table.Connect(again)
	apply(t, b, table, openflow.Result{Messages: 20, Added: 20})
	if diff := cmp.Diff(texts(numbered(20)), b.Flows()); diff != "" {
		t.Error(diff)
	}
}

func TestHungSwitchEndsInTime(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn := dial(t, b)
	_, pid := b.Daemons.PIDs()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	table := openflow.NewFlowTable(owner, 1)
	table.Connect(conn)
	table.SetFlows("a", fixed(numbered(5000)))
	if _, err := table.Apply(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := conn.Barrier(ctx); err == nil {
		t.Error("the connection is still used after an operation was cut off")
	}
}

func TestDialNeedsOpenFlow15(t *testing.T) {
	b := ovstest.NewBridge(t)
	b.Run("ovs-vsctl", "--timeout=10", "--db=unix:"+b.Daemons.DBSocket(), "set", "bridge", "br-int", "protocols=OpenFlow13")
	ovstest.Poll(t, func() error {
		c, err := openflow.Dial(b.Context(), b.Management())
		if err == nil {
			_ = c.Close()
			return errors.New("still accepted")
		}
		return nil
	})
	if _, err := openflow.Dial(b.Context(), b.Daemons.Dir()+"/none.mgmt"); err == nil || !strings.Contains(err.Error(), "none.mgmt") {
		t.Errorf("got %v", err)
	}
}

func TestClosedConnection(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn := dial(t, b)
	for range 3 {
		if err := conn.Barrier(b.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Barrier(b.Context()); err == nil {
		t.Error("barrier on a closed connection")
	}
	if _, err := openflow.NewFlowTable(owner, 1).Apply(b.Context()); err == nil {
		t.Error("apply without a switch")
	}
}
