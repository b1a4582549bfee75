package nftables

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// TestRefusedPolicyClosesItsChains: a refused policy closes its pods, even if their other policies allow the
// packet, and in every chain that asks the policy.
func TestRefusedPolicyClosesItsChains(t *testing.T) {
	for _, how := range []string{"named", "unnamed"} {
		t.Run(how, func(t *testing.T) {
			p := tablestest.NewPath(t)
			f := namespace{fd: p.Router.FD}.openFaulty(t)
			want := func(version int) {
				tablestest.LoadAsking(f.Table, rule(tables.Accept{}, fmt.Sprint("version ", version), proto(model.UDP), ports(80, 80)))
			}
			want(0)
			apply(t, f.Table)
			p.Want(t, tablestest.AskingPackets(false))
			f.refuses = content("chain", "bad")
			if how == "unnamed" {
				f.refuses = unnamed(f.refuses)
			}
			want(1)
			for range 3 { // the second finds nothing to do, the third tries in vain
				r := apply(t, f.Table)
				if len(r.Refused) != 1 || !slices.Equal(r.Refused[0].Closed, tablestest.ClosedByBad()) {
					t.Errorf("%+v", r.Refused)
				}
				p.Want(t, tablestest.AskingPackets(true))
				wantSilent(t, f.Table)
				f.now = f.now.Add(time.Second)
			}
			f.refuses = nil
			f.now = f.now.Add(time.Minute)
			if r := apply(t, f.Table); len(r.Refused) != 0 {
				t.Errorf("%+v", r)
			}
			p.Want(t, tablestest.AskingPackets(false))
			wantSilent(t, f.Table)
			f.Invalidate()
			wantSilent(t, f.Table)
		})
	}
}

// TestAskerIsTriedApart: a policy that is accepted at last stays, although one of the chains that ask it has
// become wrong meanwhile; the others open.
func TestAskerIsTriedApart(t *testing.T) {
	ns := newNamespace(t)
	f := ns.openFaulty(t)
	want := func(rules int) {
		for _, name := range []string{"p1", "p2"} {
			c := tables.Chain{Name: name, Rules: []tables.Rule{rule(tables.Jump{Chain: "policy"}, "")}}
			for i := range rules {
				c.Rules = append(c.Rules, rule(tables.Accept{}, fmt.Sprint("rule ", i)))
			}
			f.UpdateChain(c)
		}
		f.UpdateChain(tables.Chain{Name: "policy", Rules: []tables.Rule{rule(tables.Return{}, fmt.Sprint("version ", rules))}})
		f.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
			rule(tables.Goto{Chain: "p1"}, "", prefix(tables.Source, "10.0.0.0/8", false)),
			rule(tables.Goto{Chain: "p2"}, "", prefix(tables.Source, "11.0.0.0/8", false)),
		}})
	}
	want(1)
	apply(t, f.Table)
	f.refuses = unnamed(content("chain", "policy"))
	want(2)
	if r := apply(t, f.Table); strings.Join(r.Refused[0].Closed, " ") != "p1 p2 policy" {
		t.Errorf("%+v", r.Refused)
	}
	f.refuses = unnamed(content("chain", "p1"))
	f.now = f.now.Add(time.Second)
	r := apply(t, f.Table)
	if len(r.Refused) != 1 || r.Refused[0].Name != "p1" || !slices.Equal(r.Refused[0].Closed, []string{"p1"}) {
		t.Errorf("%+v", r.Refused)
	}
	for _, name := range []string{"p2", "policy"} {
		wantChain(t, f.Table, *f.chains[name].desired)
	}
	wantSilent(t, f.Table)
	f.refuses = nil
	f.now = f.now.Add(time.Second)
	if r := apply(t, f.Table); len(r.Refused) != 0 {
		t.Errorf("%+v", r.Refused)
	}
	wantChain(t, f.Table, *f.chains["p1"].desired)
	wantSilent(t, f.Table)
}
