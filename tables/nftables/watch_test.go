package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
)

// agent stands for the driver's loop: it watches a table and applies it when it
// changes. The tests' own updates go through do, so that one goroutine uses the
// table.
type agent struct {
	table *Table
	wake  chan struct{}
	calls chan func()
	mu    sync.Mutex
	// results are those of all applies that the loop made by itself.
	results []tables.Result
	at      []time.Time // when each was done
	// stop ends the loop, but not the watch: the test applies the table itself.
	stop func()
	// busy is locked while changed is to wait: then no goroutine reads the notifications.
	busy sync.Mutex
}

// running runs an agent until the test ends. The table is subscribed to when it
// returns.
func running(t testing.TB, table *Table) *agent {
	t.Helper()
	a := &agent{table: table, wake: make(chan struct{}, 1), calls: make(chan func())}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := table.Watch(ctx, a.changed)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended: %v", err)
		}
	})
	loop, stop := context.WithCancel(ctx)
	looping := make(chan struct{})
	running.Go(func() {
		defer close(looping)
		a.loop(loop, t)
	})
	a.stop = func() {
		stop()
		<-looping
	}
	t.Cleanup(func() {
		cancel()
		stop()
		running.Wait()
	})
	a.eventually(t, "the subscription", func() bool { return table.log.Subscribed() })
	return a
}

// changed wakes the loop up.
func (a *agent) changed() {
	a.busy.Lock()
	defer a.busy.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *agent) loop(ctx context.Context, t testing.TB) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-a.calls:
			f()
		case <-a.wake:
			r, err := a.table.Apply(ctx)
			if err != nil && ctx.Err() == nil {
				t.Errorf("apply: %v", err)
				a.changed()
				time.Sleep(10 * time.Millisecond)
				continue
			}
			a.mu.Lock()
			a.results, a.at = append(a.results, r), append(a.at, time.Now())
			a.mu.Unlock()
		}
	}
}

// do calls f in the loop.
func (a *agent) do(f func()) {
	done := make(chan struct{})
	a.calls <- func() { defer close(done); f() }
	<-done
}

// repairs returns the repairs so far, each as text.
func (a *agent) repairs() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, r := range a.results {
		for _, x := range r.Repaired {
			by, _, _ := strings.Cut(x.By, " (pid ")
			out = append(out, fmt.Sprintf("%s %s: %s, by %s", x.Object, x.Name, x.What, by))
		}
	}
	return out
}

func (a *agent) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.results, a.at = nil, nil
}

// eventually waits until is holds. A failure prints the repairs.
func (a *agent) eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	eventually.True(t, what, is, func() string { return fmt.Sprintf("repairs so far: %q", a.repairs()) })
}

// foreignChanges is one foreign change of the example, with the repairs that Apply reports.
type foreignChanges struct {
	name, script string
	want         []string
}

// The rule of the example that is tampered with.
const webRule = "x/base ingress[0]"

func drifts() []foreignChanges {
	return slices.Concat(ruleDrifts(), chainDrifts(), setDrifts(), tableDrifts())
}

func ruleDrifts() []foreignChanges {
	return []foreignChanges{
		{"rule deleted", "delete rule inet felixlike pin-x/base-1 handle %HANDLE%", []string{"chain pin-x/base-1: 1 rule missing"}},
		{"rule added", "insert rule inet felixlike forward accept", []string{"chain forward: 1 foreign rule"}},
		{"rule added with our comment", `insert rule inet felixlike forward accept comment "%COMMENT%"`, []string{"chain forward: 1 foreign rule"}},
		{"rule added with an anonymous set", "add rule inet felixlike to-pods tcp dport { 22, 80 } accept", []string{"chain to-pods: 1 foreign rule"}},
		{"rule swapped under our comment", `replace rule inet felixlike pin-x/base-1 handle %HANDLE% accept comment "%COMMENT%"`, []string{"chain pin-x/base-1: 1 rule changed"}},
		{"rule moved", `delete rule inet felixlike pin-x/base-1 handle %HANDLE%
			add rule inet felixlike pin-x/base-1 %RULE%`, []string{"chain pin-x/base-1: 1 rule moved"}},
		{"rule changed", "replace rule inet felixlike pin-x/base-1 handle %HANDLE% drop", []string{"chain pin-x/base-1: 1 rule missing, 1 foreign rule"}},
	}
}

func chainDrifts() []foreignChanges {
	return []foreignChanges{
		{"chain flushed", "flush chain inet felixlike pods-in-x/base-1", []string{"chain pods-in-x/base-1: 7 rules missing"}},
		{"base chain deleted", "delete chain inet felixlike forward", []string{"chain forward: deleted"}},
		{"chain emptied and deleted", `flush chain inet felixlike pods-in-x/base-1
			flush chain inet felixlike pin-x/base-1
			delete chain inet felixlike pin-x/base-1`, []string{"chain pin-x/base-1: deleted", "chain pods-in-x/base-1: 7 rules missing"}},
		{"chain added", "add chain inet felixlike stray", []string{"chain stray: foreign chain"}},
		{"chain added and led to", `add chain inet felixlike stray
			add rule inet felixlike stray accept
			insert rule inet felixlike to-pods jump stray`, []string{"chain stray: foreign chain", "chain to-pods: 1 foreign rule"}},
		{"base chain added", "add chain inet felixlike stray { type filter hook forward priority -10; policy drop; }", []string{"chain stray: foreign chain"}},
		{"chain renamed", "rename chain inet felixlike pin-x/base-1 stray", nil},
		{"policy changed", "chain inet felixlike forward { policy drop; }", []string{"chain forward: policy changed"}},
		{"hook changed", `delete chain inet felixlike forward
			add chain inet felixlike forward { type filter hook forward priority 7; }`, []string{"chain forward: hook changed, 3 rules missing"}},
	}
}

func setDrifts() []foreignChanges {
	return []foreignChanges{
		{"element deleted", "delete element inet felixlike aweb-4 { 10.0.0.1 }", []string{"set aweb-4: 1 member missing"}},
		{"element added", "add element inet felixlike aweb-6 { fd00::66, fd00::67 }", []string{"set aweb-6: 2 foreign members"}},
		{"triple swapped", `delete element inet felixlike phttp-4 { 10.0.0.1 . tcp . 80 }
			add element inet felixlike phttp-4 { 10.0.0.1 . tcp . 81 }`, []string{"set phttp-4: 1 member missing, 1 foreign member"}},
		{"prefix deleted", "delete element inet felixlike nblock-4 { 10.2.0.0/15 }", []string{"set nblock-4: 1 member missing"}},
		{"prefix added", "add element inet felixlike nblock-4 { 11.0.0.0/8 }", []string{"set nblock-4: 1 foreign member"}},
		{"range added", "add element inet felixlike nblock-4 { 11.0.0.1-11.0.0.9 }", []string{"set nblock-4: 1 foreign member"}},
		{"set flushed", "flush set inet felixlike nblock-6", []string{"set nblock-6: 4 members missing"}},
		{"entry deleted", "delete element inet felixlike to-pods-4 { 10.0.0.1 }", []string{"map to-pods-4: 1 entry missing"}},
		{"entry added", "add element inet felixlike to-pods-4 { 10.0.0.9 : accept }", []string{"map to-pods-4: 1 foreign entry"}},
		{"verdict changed", `delete element inet felixlike to-pods-4 { 10.0.0.3 }
			add element inet felixlike to-pods-4 { 10.0.0.3 : accept }`, []string{"map to-pods-4: 1 verdict changed"}},
		{"map flushed", "flush map inet felixlike to-pods-4", []string{"map to-pods-4: 3 entries missing"}},
		{"set added", "add set inet felixlike stray { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }; }", []string{"set stray: foreign set"}},
		{"odd set added", "add set inet felixlike stray { type ether_addr; timeout 1h; }", []string{"set stray: foreign set"}},
		{"map added", "add map inet felixlike stray { type ipv4_addr : verdict; elements = { 1.1.1.1 : goto to-pods }; }", []string{"map stray: foreign map"}},
		{"set deleted", `flush chain inet felixlike pin-x/base-1
			delete set inet felixlike nblock-6`, []string{"chain pin-x/base-1: 10 rules missing", "set nblock-6: deleted"}},
		{"set of another type", `flush chain inet felixlike pin-x/base-1
			delete set inet felixlike aweb-4
			add set inet felixlike aweb-4 { type ipv4_addr; flags interval; }`, []string{"chain pin-x/base-1: 10 rules missing", "set aweb-4: type changed"}},
	}
}

func tableDrifts() []foreignChanges {
	return []foreignChanges{
		{
			"objects added", `add counter inet felixlike c
			add quota inet felixlike q { over 5 mbytes }
			insert rule inet felixlike forward counter name "c"`,
			[]string{"chain forward: 1 foreign rule", "object c: foreign object", "object q: foreign object"},
		},
		{
			"object map added", `add counter inet felixlike c
			add map inet felixlike stray { type ipv4_addr : counter; elements = { 1.1.1.1 : "c" }; }`,
			[]string{"object c: foreign object", "set stray: foreign set"},
		},
		{"table flushed", "flush table inet felixlike", []string{
			"chain forward: 3 rules missing", "chain pin-x/base-1: 10 rules missing", "chain pods-in-x/base-1: 7 rules missing",
			"chain to-outside: 1 rule missing", "chain to-pods: 8 rules missing",
		}},
		{"table deleted", "delete table inet felixlike", []string{"table felixlike: deleted"}},
		{"table replaced", "delete table inet felixlike\nadd table inet felixlike", []string{"table felixlike: emptied"}},
		{"ruleset flushed", "flush ruleset", []string{"table felixlike: deleted"}},
		{"table dormant", "add table inet felixlike { flags dormant; }", []string{"table felixlike: made dormant"}},
		{
			"dormant and tampered with", `add table inet felixlike { flags dormant; }
			insert rule inet felixlike to-pods accept
			delete element inet felixlike aweb-4 { 10.0.0.1 }`,
			[]string{"chain to-pods: 1 foreign rule", "set aweb-4: 1 member missing", "table felixlike: made dormant"},
		},
	}
}

// prepared fills in the handle, the comment and the whole of the rule that is
// tampered with.
func (d foreignChanges) prepared(listing string) string {
	for line := range strings.Lines(listing) {
		m := ruleLine.FindStringSubmatch(line)
		if m != nil && strings.HasSuffix(m[1], webRule) {
			text, _, _ := strings.Cut(strings.TrimSpace(line), " # handle")
			return strings.NewReplacer("%HANDLE%", m[2], "%COMMENT%", m[1], "%RULE%", text).Replace(d.script)
		}
	}
	return d.script
}

// sameTable reports whether two listings are equal but for the order of chains
// and sets, which no repair can keep.
func sameTable(a, b string) bool { return slices.Equal(blocks(a), blocks(b)) }

// blocks are the chains, sets and maps of a listing, each as one text, sorted.
func blocks(listing string) []string {
	out := strings.Split(listing, "\n\t}\n")
	for i := range out {
		out[i] = strings.TrimSpace(strings.TrimPrefix(out[i], "table inet felixlike {\n"))
	}
	slices.Sort(out)
	return out
}

// TestDriftIsRepaired: Apply repairs foreign changes of the table at once, and reports them.
func TestDriftIsRepaired(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	a := running(t, table)
	a.do(func() {
		loadExample(table)
		apply(t, table)
	})
	ns.nft(t, foreignTables)
	before := ns.list(t, "-s")
	foreign := ns.foreign(t)
	for _, d := range drifts() {
		t.Run(d.name, func(t *testing.T) {
			a.forget()
			ns.nft(t, d.prepared(ns.list(t, "-a")))
			a.eventually(t, "the repair", func() bool { return len(a.repairs()) > 0 && sameTable(before, ns.list(t, "-s")) })
			a.report(t)
			var got []string
			for _, r := range a.repairs() {
				what, by, _ := strings.Cut(r, ", by ")
				if by != "nft" {
					t.Errorf("%s: by %q", r, by)
				}
				got = append(got, what)
			}
			if d.want != nil && !cmp.Equal(d.want, got) {
				t.Errorf("repairs (-want +got):\n%s", cmp.Diff(d.want, got))
			}
			if d.name == "ruleset flushed" {
				ns.nft(t, foreignTables)
				foreign = ns.foreign(t)
			}
			if diff := cmp.Diff(foreign, ns.foreign(t)); diff != "" {
				t.Errorf("a foreign table was touched:\n%s", diff)
			}
			a.do(func() { wantSilent(t, table) })
		})
	}
}

// TestRepairKeepsTheOthers: unchanged rules keep handles and counters through the repair of their neighbours.
func TestRepairKeepsTheOthers(t *testing.T) {
	p := newPath(t)
	table := p.router.open(t)
	a := running(t, table)
	a.do(func() {
		table.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
			rule(tables.Accept{}, "sentinel", proto(model.UDP), ports(sentinel, sentinel)),
			rule(tables.Accept{}, "web", proto(model.TCP), ports(80, 80)),
			rule(tables.Accept{}, "more", proto(model.TCP), ports(81, 81)),
			rule(tables.Drop{}, "rest", proto(model.TCP)),
		}})
		apply(t, table)
	})
	wantPackets(t, p, []packetCase{
		{model.TCP, "10.1.0.1", "10.2.0.1", 80, true},
		{model.TCP, "10.1.0.1", "10.2.0.1", 81, true},
		{model.TCP, "10.1.0.1", "10.2.0.1", 82, false},
	})
	snapshot := func() []RuleSnapshot {
		s, err := table.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Chain("forward").Rules
	}
	before := snapshot()
	p.router.nft(t, fmt.Sprintf(`chain inet felixlike forward { policy drop; }
		delete rule inet felixlike forward handle %d
		insert rule inet felixlike forward ip saddr 10.9.9.9 accept`, before[2].Handle))
	a.eventually(t, "the repair", func() bool { return len(a.repairs()) == 1 })
	after := snapshot()
	if after[2].Handle == before[2].Handle || after[2].Packets != 0 {
		t.Errorf("the rule that was deleted is back as %+v", after[2])
	}
	after[2] = before[2]
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("rules (-before +after):\n%s", diff)
	}
	wantPackets(t, p, []packetCase{{model.TCP, "10.1.0.1", "10.2.0.1", 81, true}, {model.TCP, "10.1.0.1", "10.2.0.1", 82, false}})
}

const foreignTables = `table inet other { set aweb-4 { type ipv4_addr; elements = { 9.9.9.9 }; }
	chain forward { type filter hook forward priority 5; ip saddr @aweb-4 drop comment "flx:aaaaaaaaaaaaaa"; }; }
	table ip felixlike { chain forward { accept; }; }`

func (n namespace) foreign(t testing.TB) string {
	return n.run(t, "nft", "-a", "list", "table", "inet", "other") + n.run(t, "nft", "-a", "list", "table", "ip", "felixlike")
}

// report logs how long the repairs took from when they were noticed.
func (a *agent) report(t testing.TB) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range a.results {
		for _, x := range r.Repaired {
			t.Logf("%s %s: %s, by %s: repaired %v after its event (full read %v, %d messages)",
				x.Object, x.Name, x.What, x.By, a.at[i].Sub(x.Noticed).Round(10*time.Microsecond), r.FullRead, r.Messages)
		}
	}
}
