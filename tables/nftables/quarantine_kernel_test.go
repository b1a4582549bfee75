package nftables

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// TestKernelRefuses: objects that the real kernel refuses, at a first load and later, in one transaction or
// in many.
func TestKernelRefuses(t *testing.T) {
	jump := func(to string) tables.Rule { return rule(tables.Jump{Chain: to}, "") }
	for _, c := range []struct {
		name  string
		spoil func(*Table)
		// refused is named, and is closed with those that ask it.
		refused string
		askers  []string
	}{
		{"a chain that jumps to itself", func(t *Table) {
			t.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{jump("pin-x/base-1")}})
		}, "pin-x/base-1", []string{"pods-in-x/base-1"}},
		{"a loop through a map", func(t *Table) {
			t.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{jump("to-pods")}})
		}, "pin-x/base-1", []string{"pods-in-x/base-1"}},
		{"a loop of new chains that only new entries lead to", func(t *Table) {
			t.UpdateChain(tables.Chain{Name: "l1", Rules: []tables.Rule{jump("l2")}})
			t.UpdateChain(tables.Chain{Name: "l2", Rules: []tables.Rule{jump("l1")}})
			t.SetVerdict("to-pods-4", addr("10.0.0.20"), tables.Goto{Chain: "l1"})
			t.SetVerdict("to-pods-4", addr("10.0.0.21"), tables.Accept{})
		}, "l2", []string{"l1"}},
		{"too many jumps one behind the other", func(t *Table) {
			for i := range 20 {
				c := tables.Chain{Name: fmt.Sprintf("j%02d", i)}
				if i < 19 {
					c.Rules = []tables.Rule{jump(fmt.Sprintf("j%02d", i+1))}
				}
				t.UpdateChain(c)
			}
			t.SetVerdict("to-pods-6", addr("fd00::20"), tables.Jump{Chain: "j00"})
		}, "j13", []string{"j00", "j01", "j02", "j03", "j04", "j05", "j06", "j07", "j08", "j09", "j10", "j11", "j12"}},
	} {
		for _, limit := range []int{maxBatch, 10} {
			for _, loaded := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/limit=%d/loaded=%v", c.name, limit, loaded), func(t *testing.T) {
					ns := newNamespace(t)
					table := ns.open(t)
					table.limit = limit
					loadExample(table)
					if loaded {
						apply(t, table)
					}
					c.spoil(table)
					r := apply(t, table)
					closed := append([]string{c.refused}, c.askers...)
					slices.Sort(closed)
					if len(r.Refused) != 1 || r.Refused[0].Name != c.refused || !slices.Equal(r.Refused[0].Closed, closed) {
						t.Errorf("refused: %+v", r.Refused)
					}
					for name, chain := range table.chains {
						if !slices.Contains(closed, name) {
							wantChain(t, table, *chain.desired)
						} else if got := rulesByChain(t, table)[name]; len(got) != 1 || !strings.HasPrefix(got[0], "drop refused: ") {
							t.Errorf("%s is not closed: %v", name, got)
						}
					}
					wantSilent(t, table)
					table.Invalidate()
					wantSilent(t, table)
				})
			}
		}
	}
}

// TestRestartWithRefusedObjects: closed chains stay closed after a restart, and refused objects stay refused.
func TestRestartWithRefusedObjects(t *testing.T) {
	ns := newNamespace(t)
	fault := content("chain", "pin-x/base-1")
	first := ns.openFaulty(t)
	first.refuses = fault
	loadExample(first.Table)
	apply(t, first.Table)
	before := ns.list(t, "-a")

	second := ns.openFaulty(t)
	second.refuses = fault
	loadExample(second.Table)
	if r := apply(t, second.Table); r.Messages != 0 || len(r.Refused) != 1 {
		t.Errorf("%+v", r)
	}
	if diff := before == ns.list(t, "-a"); !diff {
		t.Errorf("the restart has changed the table:\n%s", ns.list(t, "-a"))
	}

	// Another program has opened the closed chain meanwhile, under the same comment.
	comment := rulesByChain(t, second.Table)["pin-x/base-1"][0]
	hash := second.chains["pin-x/base-1"].replacementHashes[0]
	ns.nft(t, fmt.Sprintf("flush chain inet felixlike pin-x/base-1\nadd rule inet felixlike pin-x/base-1 counter accept comment \"flx:%s %s\"",
		hash, strings.TrimPrefix(comment, "drop ")))
	third := ns.openFaulty(t)
	third.refuses = fault
	loadExample(third.Table)
	apply(t, third.Table)
	if got := rulesByChain(t, third.Table)["pin-x/base-1"]; len(got) != 1 || got[0] != comment {
		t.Errorf("the chain has %v", got)
	}
}

// TestRefusedPolicyDropsPackets: packets of a pod with a refused policy are dropped, although its old version
// and the pod's other policies allow them; other pods' packets pass.
func TestRefusedPolicyDropsPackets(t *testing.T) {
	p := newPath(t)
	f := p.router.openFaulty(t)
	loadDispatch(f.Table)
	allow := func(name, comment string, port uint16) {
		f.UpdateChain(tables.Chain{Name: name, Rules: []tables.Rule{rule(tables.Accept{}, comment, proto(model.UDP), ports(port, port))}})
	}
	pods := func(name string, policies ...string) {
		c := tables.Chain{Name: name}
		for _, p := range policies {
			c.Rules = append(c.Rules, rule(tables.Jump{Chain: p}, ""))
		}
		c.Rules = append(c.Rules, rule(tables.Drop{}, "isolated"))
		f.UpdateChain(c)
	}
	allow("bad", "old", 80)
	allow("good", "", 90)
	pods("pods-bad", "bad")
	pods("pods-good", "good")
	pods("pods-both", "good", "bad")
	pods("pods-turned", "bad", "good")
	f.SetVerdict("to-4", addr("10.2.0.11"), tables.Goto{Chain: "pods-bad"})
	f.SetVerdict("to-4", addr("10.2.0.12"), tables.Goto{Chain: "pods-good"})
	f.SetVerdict("to-4", addr("10.2.0.13"), tables.Goto{Chain: "pods-both"})
	f.SetVerdict("to-4", addr("10.2.0.14"), tables.Goto{Chain: "pods-turned"})
	apply(t, f.Table)
	cases := func(bad80 bool) []packetCase {
		return []packetCase{
			{model.UDP, "10.1.0.5", "10.2.0.11", 80, bad80},
			{model.UDP, "10.1.0.5", "10.2.0.11", 81, false},
			{model.UDP, "10.1.0.5", "10.2.0.12", 90, true},
			{model.UDP, "10.1.0.5", "10.2.0.13", 90, bad80},
			{model.UDP, "10.1.0.5", "10.2.0.13", 80, bad80},
			{model.UDP, "10.1.0.5", "10.2.0.14", 90, bad80},
			{model.UDP, "10.1.0.5", "10.2.0.14", 80, bad80},
		}
	}
	wantPackets(t, p, cases(true))
	f.refuses = content("chain", "bad")
	allow("bad", "new", 80)
	if r := apply(t, f.Table); len(r.Refused) != 1 {
		t.Errorf("%+v", r)
	}
	wantPackets(t, p, cases(false))
	f.refuses = nil
	f.now = f.now.Add(time.Second)
	if r := apply(t, f.Table); len(r.Refused) != 0 {
		t.Errorf("%+v", r)
	}
	wantPackets(t, p, cases(true))

	// An entry that is refused is closed, wherever its address is.
	f.refuses = func(o ObjectError) error {
		if strings.HasPrefix(o.Rule, "entry 10.2.0.12 : goto pods-bad") {
			return errInjected
		}
		return nil
	}
	f.SetVerdict("to-4", addr("10.2.0.12"), tables.Goto{Chain: "pods-bad"})
	if r := apply(t, f.Table); len(r.Refused) != 1 {
		t.Errorf("%+v", r)
	}
	wantPackets(t, p, []packetCase{
		{model.UDP, "10.1.0.5", "10.2.0.12", 80, false},
		{model.UDP, "10.1.0.5", "10.2.0.12", 90, false},
		{model.UDP, "10.1.0.5", "10.2.0.11", 80, true},
	})
}

// While faults come and go, nothing is open for a moment: packets that no version
// of a policy lets through never get through.
func TestNoOpenMoment(t *testing.T) {
	p := newPath(t)
	f := p.router.openFaulty(t)
	f.limit = 4
	loadDispatch(f.Table)
	want := func(version int) {
		comment := fmt.Sprint("version ", version)
		f.CreateSet(ipsetOf(version))
		f.AddMembers(ipsetOf(version).Name, membersOf("10.1.0.9"))
		if version > 0 {
			f.RemoveSet(ipsetOf(version - 1).Name)
		}
		// The tier denies the port before an open rule: an empty policy would be open.
		f.UpdateChain(tables.Chain{Name: "deny", Rules: []tables.Rule{
			rule(tables.Drop{}, comment, proto(model.UDP), ports(81, 81)),
			rule(tables.Drop{}, comment, srcSet(model.IPv4, ipsetOf(version).Name)),
		}})
		f.UpdateChain(tables.Chain{Name: "pods", Rules: []tables.Rule{rule(tables.Jump{Chain: "deny"}, comment), rule(tables.Accept{}, "")}})
		f.SetVerdict("to-4", addr("10.2.0.2"), tables.Goto{Chain: "pods"})
	}
	want(0)
	apply(t, f.Table)
	if !p.passes(t, model.UDP, addr("10.1.0.2"), addr("10.2.0.2"), 80) || p.passes(t, model.UDP, addr("10.1.0.2"), addr("10.2.0.2"), 81) {
		t.Fatal("the policy does not work")
	}
	stop := p.Flood(t, addr("10.1.0.2"), addr("10.2.0.2"), 81)
	random := rand.New(rand.NewPCG(1, 2))
	closed := 0
	for version := range 400 {
		want(version + 1)
		all := []func(ObjectError) error{nil, content("chain", "deny"), content("chain", "pods"), everything("set", ipsetOf(version+1).Name), everything("chain", "deny")}
		f.refuses = all[random.IntN(len(all))]
		if f.refuses != nil && random.IntN(2) == 0 {
			f.refuses = unnamed(f.refuses)
		}
		f.now = f.now.Add(time.Duration(random.IntN(1500)) * time.Millisecond)
		if r := apply(t, f.Table); len(r.Refused) > 0 {
			closed++
		}
	}
	sent, arrived := stop()
	if arrived != 0 {
		t.Errorf("%d of %d packets came through that every version denies", arrived, sent)
	}
	t.Logf("%d packets sent, %d of 400 versions refused", sent, closed)
}

// With as many objects as a big node has, one that is refused does not hold the
// others up.
func TestRefusedAmongMany(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const chains = 1000
	clean := newNamespace(t)
	table := clean.open(t)
	load(table, chains)
	apply(t, table)
	want := clean.objects(t)
	several := func() func(ObjectError) error {
		var all []func(ObjectError) error
		for i := range 5 {
			all = append(all, content("chain", bigChain(i*199+3).Name))
		}
		return anyOf(append(all, everything("set", "a7-4"))...)
	}
	const oneSet, oneRule = "a7-4", "pin-ns/policy-777"
	random := rand.New(rand.NewPCG(3, 4))
	ofSet := []string{bigChain(28).Name, bigChain(29).Name, bigChain(30).Name, bigChain(31).Name}
	severalClosed := slices.Clone(ofSet)
	for i := range 5 {
		severalClosed = append(severalClosed, bigChain(i*199+3).Name)
	}
	for _, c := range []struct {
		name     string
		refuses  func() func(ObjectError) error
		closed   []string
		anything []string
	}{
		{"one set", func() func(ObjectError) error { return everything("set", oneSet) }, ofSet, []string{"set " + oneSet}},
		{"one rule", func() func(ObjectError) error { return content("chain", oneRule) }, []string{oneRule}, nil},
		{"several", several, severalClosed, []string{"set a7-4"}},
		{"a batch at random", func() func(ObjectError) error {
			left := 1
			return func(ObjectError) error {
				if left > 0 && random.IntN(1000) == 0 {
					left--
					return kernel.ErrUnnamed
				}
				return nil
			}
		}, nil, nil},
	} {
		for _, how := range []string{"named", "unnamed"} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				ns := newNamespace(t)
				f := ns.openFaulty(t)
				f.refuses = c.refuses()
				if how == "unnamed" {
					f.refuses = unnamed(f.refuses)
				}
				load(f.Table, chains)
				first := apply(t, f.Table)
				wantLike(t, want, ns.objects(t), c.closed, c.anything)

				// In the steady state: something else changes beside a retry.
				edited := bigChain(500)
				edited.Rules = edited.Rules[1:]
				f.UpdateChain(edited)
				f.now = f.now.Add(time.Second)
				steady := apply(t, f.Table)
				wantChain(t, f.Table, edited)
				t.Logf("first load %v, one change and a retry %v", first.Duration.Round(time.Millisecond), steady.Duration.Round(10*time.Microsecond))
				if first.Duration > 20*time.Second || steady.Duration > 5*time.Second {
					t.Error("far too slow")
				}
				f.refuses = nil
				f.UpdateChain(bigChain(500))
				f.now = f.now.Add(time.Hour)
				if r := apply(t, f.Table); len(r.Refused) != 0 {
					t.Errorf("%+v", r.Refused)
				}
				wantLike(t, want, ns.objects(t), nil, nil)
			})
		}
	}
}

func ipsetOf(version int) ipsets.Set {
	return ipsets.Set{Name: ipsets.Name(model.GroupID(fmt.Sprint("av", version)), model.IPv4), Kind: model.Addresses, Family: model.IPv4}
}
