package nftables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
)

// twins are a table, and another one with the same desired state: it is applied only at the end, and nothing
// tampers with it.
type twins struct{ tables []*Table }

func (p twins) each(f func(*Table)) {
	for _, t := range p.tables {
		f(t)
	}
}

// update makes a random change of the desired state.
func (p twins) update(r *rand.Rand) {
	member := membersOf(nth("10.7.0.0", r.IntN(20)).String())
	network := []model.Member{{Prefix: netip.MustParsePrefix(fmt.Sprintf("11.%d.0.0/16", r.IntN(20)))}}
	entry := nth("10.8.0.0", r.IntN(20))
	verdicts := []tables.Action{tables.Accept{}, tables.Drop{}, tables.Goto{Chain: "pods-in-x/base-1"}, tables.Jump{Chain: "pin-x/base-1"}}
	verdict := verdicts[r.IntN(len(verdicts))]
	extra := fmt.Sprintf("extra-%d", r.IntN(4))
	rules := []tables.Rule{rule(tables.Drop{}, "isolated")}
	for range r.IntN(6) {
		rules = append(rules, rule(tables.Accept{}, fmt.Sprint(r.IntN(9)), srcSet(model.IPv4, "aweb-4"), proto(model.TCP)))
	}
	switch r.IntN(8) {
	case 0, 1:
		p.each(func(t *Table) { t.AddMembers("aweb-4", member) })
	case 2:
		p.each(func(t *Table) { t.RemoveMembers("aweb-4", member) })
	case 3:
		p.each(func(t *Table) { t.AddMembers("nblock-4", network) })
	case 4:
		p.each(func(t *Table) { t.SetVerdict("to-pods-4", entry, verdict) })
	case 5:
		p.each(func(t *Table) { t.RemoveVerdict("to-pods-4", entry) })
	case 6:
		p.each(func(t *Table) { t.UpdateChain(tables.Chain{Name: extra, Rules: rules}) })
	case 7:
		set := ipsets.Set{Name: "s" + extra, Kind: model.Addresses, Family: model.IPv4}
		gone := r.IntN(2) == 0
		p.each(func(t *Table) {
			if gone {
				t.RemoveChain(extra)
				t.RemoveSet(set.Name)
				return
			}
			t.CreateSet(set)
			t.AddMembers(set.Name, member)
		})
	}
}

// tamper runs a random script. It may fail: its object may not exist.
func (n namespace) tamper(r *rand.Rand, listing string) string {
	all := drifts()
	script := all[r.IntN(len(all))].prepared(listing)
	more := []string{
		fmt.Sprintf("add element inet felixlike aweb-4 { %s }", nth("10.7.0.0", r.IntN(20))),
		fmt.Sprintf("delete element inet felixlike aweb-4 { %s }", nth("10.7.0.0", r.IntN(20))),
		fmt.Sprintf("delete element inet felixlike to-pods-4 { %s }", nth("10.8.0.0", r.IntN(20))),
		fmt.Sprintf("add chain inet felixlike extra-%d\nadd rule inet felixlike extra-0 accept", r.IntN(4)),
		fmt.Sprintf("flush chain inet felixlike extra-%d", r.IntN(4)),
		fmt.Sprintf("delete set inet felixlike sextra-%d", r.IntN(4)),
		"add table inet felixlike; add set inet felixlike aweb-4 { type ipv4_addr; }; add chain inet felixlike forward",
	}
	if r.IntN(2) == 0 {
		script = more[r.IntN(len(more))]
	}
	c := exec.Command("ip", "netns", "exec", n.name, "nft", "-f", "-")
	c.Stdin = strings.NewReader(script)
	_ = c.Run()
	return script
}

// TestChaos: after any of our updates and any foreign changes, the table ends as one without foreign changes.
func TestChaos(t *testing.T) {
	rounds, steps := 6, 60
	if testing.Short() {
		rounds = 2
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			ns, quiet := newNamespace(t), newNamespace(t)
			table, mirror := ns.openGuarded(t, "flx-gw0"), quiet.open(t)
			if seed%2 == 1 {
				table.limit = 30
			}
			p := twins{[]*Table{table, mirror}}
			p.each(loadExample)
			a := running(t, table)
			a.changed()
			var done []string
			for range steps {
				if r.IntN(2) == 0 {
					a.do(func() { p.update(r) })
					a.changed()
				} else {
					done = append(done, ns.tamper(r, ns.tryList("-a")))
				}
			}
			apply(t, mirror)
			want := quiet.list(t, "-s")
			a.changed()
			eventually.True(t, "the kernel has the wanted table again", func() bool { return sameTable(want, ns.tryList("-s")) }, func() string {
				return fmt.Sprintf("after %q\n(-want +got) %s", done, cmp.Diff(blocks(want), blocks(ns.tryList("-s"))))
			})
			a.do(func() {
				wantSilent(t, table)
				table.Invalidate()
				wantSilent(t, table)
			})
			t.Logf("%d repairs in %d applies, %d full reads", len(a.repairs()), a.applies(), a.fullReads())
		})
	}
}

// tryList returns the listing of the table, empty if there is no table.
func (n namespace) tryList(flags ...string) string {
	args := append(append([]string{"netns", "exec", n.name, "nft"}, flags...), "list", "table", "inet", DefaultTable)
	out, err := exec.Command("ip", args...).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// TestDriftUnderSteadyUpdates: the same while we program all the time. Every Apply succeeds, with any foreign
// change since the last one.
func TestDriftUnderSteadyUpdates(t *testing.T) {
	ns, quiet := newNamespace(t), newNamespace(t)
	table, mirror := ns.openGuarded(t, "flx-gw0"), quiet.open(t)
	p := twins{[]*Table{table, mirror}}
	p.each(loadExample)
	running(t, table).stop() // only this loop applies
	apply(t, table)
	r := rand.New(rand.NewPCG(7, 7))
	var script strings.Builder
	for _, d := range drifts() {
		if !strings.Contains(d.script, "%") {
			fmt.Fprintf(&script, "nft '%s' 2>/dev/null\n", d.script)
		}
	}
	tamperer := exec.Command("ip", "netns", "exec", ns.name, "sh", "-c", "for i in 1 2 3; do\n"+script.String()+"done")
	if err := tamperer.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- tamperer.Wait() }()
	applies, repairs, worst := 0, 0, time.Duration(0)
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(2 * time.Millisecond):
		}
		p.update(r)
		result := apply(t, table)
		applies, repairs = applies+1, repairs+len(result.Repaired)
		for _, x := range result.Repaired {
			worst = max(worst, time.Since(x.Noticed))
		}
	}
	apply(t, mirror)
	want := quiet.list(t, "-s")
	eventually.True(t, "the kernel has the wanted table again", func() bool {
		if sameTable(want, ns.tryList("-s")) {
			return true
		}
		apply(t, table)
		return false
	}, func() string { return "(-want +got) " + cmp.Diff(blocks(want), blocks(ns.tryList("-s"))) })
	wantSilent(t, table)
	t.Logf("%d applies, %d repairs, each at most %v after its event", applies, repairs, worst)
	if repairs < 20 {
		t.Errorf("only %d repairs", repairs)
	}
}
