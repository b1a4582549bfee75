package nftables

import (
	"encoding/binary"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	netns "github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// guard closes an interface as the agent's guard does.
func guard(gateway string) []tables.Chain {
	return []tables.Chain{{Name: "guard-forward", Hook: forwardHook, Rules: []tables.Rule{
		rule(tables.Accept{}, "known connections", tables.MatchConnState{States: tables.StateEstablished | tables.StateRelated}),
		rule(tables.Drop{}, "in", tables.MatchInterface{Side: tables.Source, Name: gateway}),
		rule(tables.Drop{}, "out", tables.MatchInterface{Side: tables.Destination, Name: gateway}),
	}}}
}

// openGuarded returns a driver with a guard for the namespace's table.
func (n namespace) openGuarded(t testing.TB, gateway string) *Table {
	t.Helper()
	table := n.open(t)
	table.options.Guard = guard(gateway)
	return table
}

// observer receives the notifications of the table beside the driver.
type observer struct{ s *watch.Subscription }

func (n namespace) observe(t testing.TB) *observer {
	t.Helper()
	s, _, err := watch.Subscribe(n.fd, kernel.SocketBuffer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &observer{s}
}

// only makes the kernel deliver datagrams that begin with one kind of message, so that they do not wait
// behind others.
func (o *observer) only(t testing.TB, message uint16) {
	t.Helper()
	kind := unix.NFNL_SUBSYS_NFTABLES<<8 | message
	wanted := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, kind))
	if err := o.s.Filter([]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4}, // nlmsg_type
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, Jf: 0, K: uint32(wanted)},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)},
	}); err != nil {
		t.Fatal(err)
	}
}

// wait reads until the chain is made or deleted, and returns when, and which
// chains were made before.
func (o *observer) wait(t testing.TB, message uint16, chain string) (at time.Time, before []string) {
	t.Helper()
	buffer := make([]byte, watch.DatagramSize)
	defer time.AfterFunc(30*time.Second, o.s.End).Stop()
	for {
		n, err := o.s.Receive(buffer)
		if err != nil {
			t.Errorf("waiting for chain %s: %v", chain, err)
			return at, before
		}
		at = time.Now()
		for h, payload := range watch.Messages(buffer[:n]) {
			kind, name, ours := watch.Concerns(h.Kind&0xff, payload[watch.HeaderSize:], DefaultTable)
			if h.Kind&0xff == message && ours && kind == "chain" && name == chain {
				return at, before
			}
			if h.Kind&0xff == unix.NFT_MSG_NEWCHAIN && ours {
				before = append(before, name)
			}
		}
	}
}

// TestFlushAtSize: after a flush the guard comes first and alone, before any large load, and goes in the
// transaction that brings the base chains. The size is that of a node with a thousand pods and a thousand
// policies of ten rules, both ways.
func TestFlushAtSize(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ns := newNamespace(t)
	table := ns.openGuarded(t, "flx-gw0")
	a := running(t, table)
	a.do(func() {
		load(table, 2000)
		t.Logf("first load: %+v", apply(t, table))
	})
	before := ns.list(t, "-s")
	for _, c := range []struct {
		script string
		begins int // the transaction with the guard; -1 without one
	}{
		{"flush ruleset", unix.NFT_MSG_NEWTABLE},
		{"delete table inet felixlike", unix.NFT_MSG_NEWTABLE},
		{"flush table inet felixlike", unix.NFT_MSG_NEWCHAIN},
		{"flush chain inet felixlike forward; flush map inet felixlike to-pods-4", -1},
	} {
		script := c.script
		a.forget()
		o := ns.observe(t)
		guarded := make(chan time.Time, 1)
		if c.begins >= 0 {
			o.only(t, uint16(c.begins))
			go func() {
				at, earlier := o.wait(t, unix.NFT_MSG_NEWCHAIN, "guard-forward")
				if len(earlier) != 0 {
					t.Errorf("%s: before the guard came the chains %v", script, earlier)
				}
				guarded <- at
			}()
		}
		start := time.Now()
		ns.nft(t, script)
		took := time.Since(start)
		a.eventually(t, "the repair", func() bool { return len(a.repairs()) > 0 })
		result, done := a.first()
		noticed := slices.MinFunc(result.Repaired, func(a, b tables.Repair) int { return a.Noticed.Compare(b.Noticed) }).Noticed
		if c.begins >= 0 {
			t.Logf("%s (took %v): the guard is in force %v after its event", script, took, (<-guarded).Sub(noticed))
		}
		t.Logf("%s (took %v): repaired %v after its event; %d repairs, %s %s %s by %s; full read %v, %d messages", script, took, done.Sub(noticed),
			len(result.Repaired), result.Repaired[0].Object, result.Repaired[0].Name, result.Repaired[0].What, result.Repaired[0].By,
			result.FullRead, result.Messages)
		a.eventually(t, "the whole repair", func() bool { return sameTable(before, ns.list(t, "-s")) })
		a.do(func() { wantSilent(t, table) })
		// Notifications that come after the repair has begun concern known changes.
		if n := a.applies(); n > 2 {
			t.Errorf("%s: %d applies", script, n)
		}
		if n := a.fullReads(); n > 1 {
			t.Errorf("%s: %d full reads", script, n)
		}
	}
}

// first returns the first result with repairs, and when it came.
func (a *agent) first() (tables.Result, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range a.results {
		if len(r.Repaired) > 0 {
			return r, a.at[i]
		}
	}
	return tables.Result{}, time.Time{}
}

func (a *agent) applies() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.results)
}

func (a *agent) fullReads() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, r := range a.results {
		if r.FullRead {
			n++
		}
	}
	return n
}

// TestOpenMoment measures how long denied packets pass after a foreign flush of the ruleset of a node of that
// size: until the guard is there, and not while the rest is loaded.
func TestOpenMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	p := newPath(t)
	table := p.router.openGuarded(t, "r2")
	a := running(t, table)
	a.do(func() {
		load(table, 2000)
		table.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
			rule(tables.Accept{}, "sentinel", proto(model.UDP), ports(sentinel, sentinel)),
			rule(tables.Drop{}, "closed"),
		}})
		apply(t, table)
	})
	guarded := make(chan time.Time, 1)
	o := p.router.observe(t)
	o.only(t, unix.NFT_MSG_NEWTABLE)
	go func() {
		at, _ := o.wait(t, unix.NFT_MSG_NEWCHAIN, "guard-forward")
		guarded <- at
	}()
	flushed := make(chan error, 1)
	go func() {
		flushed <- exec.Command("ip", "netns", "exec", p.router.name, "nft", "flush", "ruleset").Run()
	}()
	sent := map[uint32]time.Time{}
	for begin := time.Now(); len(a.repairs()) == 0; time.Sleep(50 * time.Microsecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("not repaired")
		}
		at := time.Now()
		sent[p.Send(t, model.UDP, addr("10.1.0.1"), addr("10.2.0.1"), 9)] = at
	}
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if p.passes(t, model.UDP, addr("10.1.0.1"), addr("10.2.0.1"), 9) {
		t.Error("it stays open")
	}
	result, done := a.first()
	closed := <-guarded
	var open []time.Time
	for probe, at := range sent {
		if !p.Arrived(probe) {
			continue
		}
		open = append(open, at)
		if at.After(closed) {
			t.Errorf("a packet came through %v after the guard was there", at.Sub(closed))
		}
	}
	if len(open) == 0 {
		t.Log("no packet came through")
		return
	}
	slices.SortFunc(open, time.Time.Compare)
	noticed := result.Repaired[0].Noticed
	t.Logf("%d of %d packets came through, over %v; the last %v after the first notification; guard after %v, full policy after %v", len(open), len(sent),
		open[len(open)-1].Sub(open[0]), open[len(open)-1].Sub(noticed), closed.Sub(noticed), done.Sub(noticed))
}

// A set that changes its type makes the table be built anew, behind the guard: interval sets take a transaction of their own.
func TestRebuildBehindTheGuard(t *testing.T) {
	for _, limit := range []int{maxBatch, 20} {
		ns := newNamespace(t)
		table := ns.openGuarded(t, "flx-gw0")
		table.limit = limit
		loadExample(table)
		first := apply(t, table)
		if first.RulesAdded != exampleRules+3 || first.RulesDeleted != 3 {
			t.Errorf("first load: %+v", first)
		}
		if listing := ns.list(t); strings.Contains(listing, "guard") {
			t.Errorf("the guard stays:\n%s", listing)
		}
		o := ns.observe(t)
		table.RemoveSet("aweb-4")
		table.CreateSet(ipsets.Set{Name: "aweb-4", Kind: model.Networks, Family: model.IPv4})
		table.AddMembers("aweb-4", membersOf("10.0.0.0/8"))
		r := apply(t, table)
		if r.RulesAdded != exampleRules+3 {
			t.Errorf("limit %d: %+v", limit, r)
		}
		if limit != maxBatch {
			if _, earlier := o.wait(t, unix.NFT_MSG_NEWCHAIN, "guard-forward"); len(earlier) != 0 {
				t.Errorf("before the guard came the chains %v", earlier)
			}
			_, between := o.wait(t, unix.NFT_MSG_NEWCHAIN, "forward")
			if diff := cmp.Diff([]string{"pin-x/base-1", "pods-in-x/base-1", "to-pods"}, between); diff != "" {
				t.Errorf("chains before the base chains: %s", diff)
			}
			o.wait(t, unix.NFT_MSG_DELCHAIN, "guard-forward")
		}
		wantSilent(t, table)
		table.Invalidate()
		wantSilent(t, table)
	}
}

// Behind the guard, connections go on and none begins.
func TestGuardKeepsConnections(t *testing.T) {
	p := newPath(t)
	table := p.router.openGuarded(t, "r2")
	table.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
		rule(tables.Accept{}, "all", tables.MatchConnState{States: tables.StateEstablished | tables.StateNew}),
	}})
	apply(t, table)
	listener := in(t, p.receiver, func() (net.Listener, error) { return net.Listen("tcp", "10.2.0.1:80") })
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	dial := func(wait time.Duration) (net.Conn, error) {
		d := net.Dialer{Timeout: wait, LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.1.0.1")}}
		return d.Dial("tcp", "10.2.0.1:80")
	}
	established := in(t, p.sender, func() (net.Conn, error) { return dial(10 * time.Second) })
	defer established.Close()
	echoes := func() {
		t.Helper()
		_ = established.SetDeadline(time.Now().Add(10 * time.Second))
		got := make([]byte, 4)
		if _, err := established.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(established, got); err != nil {
			t.Fatal(err)
		}
	}
	echoes()

	p.router.nft(t, "flush ruleset")
	table.Invalidate()
	if _, err := table.learn(&tables.Result{}); err != nil {
		t.Fatal(err)
	}
	if table.synced, table.trusted = false, false; !strings.Contains(p.router.list(t), "guard-forward") {
		t.Fatal(p.router.list(t))
	}
	echoes()
	if c, err := tryIn(p.sender, func() (net.Conn, error) { return dial(300 * time.Millisecond) }); err == nil {
		_ = c.Close()
		t.Error("a new connection came through the guard")
	}
	// An agent that ended here: the next one goes on behind the guard.
	next := p.router.openGuarded(t, "r2")
	next.UpdateChain(*table.chains["forward"].desired)
	apply(t, next)
	if listing := p.router.list(t); strings.Contains(listing, "guard") {
		t.Error(listing)
	}
	echoes()
	_ = in(t, p.sender, func() (net.Conn, error) { return dial(10 * time.Second) }).Close()
}

// tryIn calls f on a thread in the namespace.
func tryIn[T any](ns namespace, f func() (T, error)) (out T, err error) {
	err = netns.In(ns.fd, func() (err error) {
		out, err = f()
		return err
	})
	return out, err
}

func in[T any](t testing.TB, ns namespace, f func() (T, error)) T {
	t.Helper()
	out, err := tryIn(ns, f)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
