package nftables

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// listening subscribes for the table by hand, so that the test reads the notifications.
func listening(t testing.TB, ns namespace, table *Table) *watch.Subscription {
	t.Helper()
	s, generation, err := watch.Subscribe(ns.fd, kernel.SocketBuffer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := table.log.Begin(s, generation); err != nil {
		t.Fatal(err)
	}
	return s
}

// delivered returns the datagrams that wait in the socket.
func delivered(t testing.TB, s *watch.Subscription) [][]byte {
	t.Helper()
	var out [][]byte
	buffer := make([]byte, watch.DatagramSize)
	lost, err := s.Drain(buffer, func(datagram []byte) { out = append(out, bytes.Clone(datagram)) })
	if err != nil || lost {
		t.Fatal(lost, err)
	}
	return out
}

// TestOwnCommitsAreNotDelivered: the kernel does not deliver our commits, over any connection; it delivers
// others'.
func TestOwnCommitsAreNotDelivered(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	s := listening(t, ns, table)
	chains := 2000
	if testing.Short() {
		chains = 20
	}
	load(table, chains)
	r := apply(t, table)
	if got := delivered(t, s); len(got) != 0 {
		t.Errorf("%d datagrams of a load of %d rules", len(got), r.RulesAdded)
	}
	ns.nft(t, "add chain inet felixlike stray")
	if got := delivered(t, s); len(got) != 2 { // the change and the end of the transaction
		t.Errorf("%d datagrams of a foreign change", len(got))
	}

	// A new connection, another port; the old one is anybody's.
	old := table.conn.Port()
	if err := table.disconnect(); err != nil {
		t.Fatal(err)
	}
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns.fd, PID: old})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := table.connect(); err != nil {
		t.Fatal(err)
	}
	if err := table.conn.Commit([]kernel.Op{table.sets["a1-4"].memberOp(kernel.AddMembers, changesOf("10.9.9.9"))}); err != nil {
		t.Fatal(err)
	}
	if got := delivered(t, s); len(got) != 0 {
		t.Errorf("%d datagrams over a new connection", len(got))
	}
	transmit(t, raw, func(m *expression.Message) {
		m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELSETELEM, 0, 2, unix.NFPROTO_INET, 0)
		m.Text(unix.NFTA_SET_ELEM_LIST_TABLE, DefaultTable)
		m.Text(unix.NFTA_SET_ELEM_LIST_SET, "a1-4")
		list := m.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		element := m.Nest(unix.NFTA_LIST_ELEM)
		m.Value(unix.NFTA_SET_ELEM_KEY, []byte{10, 9, 9, 9})
		m.Close(element)
		m.Close(list)
		m.End()
	})
	if got := delivered(t, s); len(got) != 2 {
		t.Errorf("%d datagrams of another program's commits from our former port", len(got))
	}
}

// TestWhoseChangeItIs: delivered changes are judged by port and generation.
func TestWhoseChangeItIs(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	s := listening(t, ns, table)
	if err := s.Ignore(0); err != nil {
		t.Fatal(err)
	}
	loadExample(table)
	apply(t, table)
	expect := func(what string, want bool) {
		t.Helper()
		got := delivered(t, s)
		if len(got) == 0 {
			t.Fatalf("%s: nothing is delivered", what)
		}
		recorded := false
		for _, d := range got {
			recorded = table.log.Record(d, time.Now()) || recorded
		}
		if recorded != want {
			t.Errorf("%s: is a new change %v, want %v", what, recorded, want)
		}
		table.log.Take()
	}
	if err := s.Ignore(0); err != nil { // connecting has set it
		t.Fatal(err)
	}
	table.AddMembers("aweb-4", membersOf("10.0.0.9"))
	apply(t, table)
	expect("our own change", false)
	ns.nft(t, "add element inet felixlike aweb-4 { 10.0.0.10 }")
	expect("a foreign change", true)
	ns.nft(t, "table inet other { set aweb-4 { type ipv4_addr; elements = { 10.0.0.10 }; }; }")
	expect("another table", false)
	ns.nft(t, "table ip felixlike { set aweb-4 { type ipv4_addr; elements = { 10.0.0.10 }; }; }")
	expect("another family", false)
	ns.nft(t, "add counter inet felixlike c")
	expect("something else in the table", true)

	// A late notification: a full read has seen the change already.
	ns.nft(t, "add element inet felixlike aweb-4 { 10.0.0.11 }")
	generation, err := table.conn.Generation()
	if err != nil {
		t.Fatal(err)
	}
	table.log.BeginRead(generation)
	expect("a change before the last full read", false)
	ns.nft(t, "add element inet felixlike aweb-4 { 10.0.0.12 }")
	expect("a change after the last full read", true)
}

// TestPortOfSomebodyElse: a commit from our port before we had that port is another program's.
func TestPortOfSomebodyElse(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	s := listening(t, ns, table)
	loadExample(table)
	apply(t, table)
	ns.nft(t, "add element inet felixlike aweb-4 { 10.0.0.13 }")
	var port uint32
	got := delivered(t, s)
	for h := range watch.Messages(got[0]) {
		port = h.Port
	}
	generation, err := table.conn.Generation()
	if err != nil {
		t.Fatal(err)
	}
	table.log.SetCommitter(port, generation)
	if !table.log.Record(got[0], time.Now()) {
		t.Error("a foreign change from the port that is ours now counts as our own")
	}
}

// TestLostNotifications: when notifications are lost, Apply reads everything and repairs the missed changes.
// Tables of other programs may be the reason.
func TestLostNotifications(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	table.listenBuffer = 1 // the kernel takes its least, some 2 kB
	a := running(t, table)
	a.do(func() {
		loadExample(table)
		apply(t, table)
	})
	before := ns.list(t, "-s")
	var flood strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&flood, "add element inet other s { %s }\n", nth("10.0.0.0", i))
	}
	ns.nft(t, "table inet other { set s { type ipv4_addr; }; }")
	for round := range 3 {
		a.forget()
		// The kernel waits a little for a slow reader, but not for one that does not read:
		// the first change makes the watch call changed, which waits.
		a.busy.Lock()
		ns.nft(t, "add element inet felixlike aweb-4 { 10.99.0.1 }")
		ns.nft(t, "delete element inet felixlike aweb-4 { 10.99.0.1 }")
		ns.nft(t, "flush set inet other s\n"+flood.String()+`insert rule inet felixlike forward accept
			delete element inet felixlike aweb-4 { 10.0.0.1 }
			`+flood.String())
		a.busy.Unlock()
		a.eventually(t, "the repair", func() bool { return len(a.repairs()) == 2 && ns.list(t, "-s") == before })
		if a.fullReads() == 0 {
			t.Errorf("round %d: nothing was lost: %d applies", round, a.applies())
		}
		a.report(t)
		a.do(func() { wantSilent(t, table) })
	}
	// The new subscription receives. The loss may still cause a last full read.
	a.eventually(t, "a repair without a full read", func() bool {
		a.forget()
		ns.nft(t, "delete element inet felixlike aweb-4 { 10.0.0.1 }")
		a.eventually(t, "the repair", func() bool { return len(a.repairs()) == 1 && ns.list(t, "-s") == before })
		return a.fullReads() == 0
	})
}

// A change between the last read and the subscription is found.
func TestWatchAfterTheFirstApply(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	before := ns.list(t, "-s")
	ns.nft(t, "insert rule inet felixlike forward accept")
	a := running(t, table)
	a.eventually(t, "the repair", func() bool { return len(a.repairs()) == 1 })
	if after := ns.list(t, "-s"); after != before || a.fullReads() != 1 {
		t.Errorf("%d full reads\n%s", a.fullReads(), after)
	}
}

// TestSteadyStateReadsNothing: with a watch from the beginning, only the first Apply reads.
func TestSteadyStateReadsNothing(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	a := running(t, table)
	var r tables.Result
	a.do(func() {
		loadExample(table)
		if r = apply(t, table); !r.FullRead {
			t.Errorf("first apply: %+v", r)
		}
	})
	for i := range 50 {
		a.do(func() {
			table.AddMembers("aweb-4", membersOf(nth("10.7.0.0", i).String()))
			if r = apply(t, table); r.FullRead || r.Messages != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
	ns.nft(t, "table inet other { chain c { }; }\ndelete table inet other")
	a.do(func() { wantSilent(t, table) })
	if n := a.applies(); n != 0 {
		t.Errorf("%d applies for nothing", n)
	}
}

// BenchmarkForeignNotification receives an element of another program's table, such as kube-proxy's.
func BenchmarkForeignNotification(b *testing.B) {
	ns := newNamespace(b)
	ns.nft(b, "table inet other { set s { type ipv4_addr; }; }")
	table := ns.open(b)
	s := listening(b, ns, table)
	var script strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&script, "add element inet other s { %s }\n", nth("10.0.0.0", i))
	}
	ns.nft(b, script.String())
	datagrams := delivered(b, s)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for _, d := range datagrams {
			if table.log.Record(d, time.Time{}) {
				b.Fatal("news of another table")
			}
		}
		n += 1000
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/notification")
}
