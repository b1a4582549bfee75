package nftables

import (
	"fmt"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// world is a small random table: a base chain, a chain that dispatches, chains
// that jump among themselves, sets, and a map.
type world struct {
	chains  map[string]tables.Chain
	sets    map[string][]model.Member
	entries map[netip.Addr]tables.Action
}

var (
	worldChains = []string{"c0", "c1", "c2", "c3", "c4", "c5"}
	worldSets   = []string{"a0-4", "a1-4", "a2-4"}
)

func worldAddress(i int) netip.Addr { return nth("10.0.0.1", i) }

func drawWorld(t *rapid.T, loops bool) world {
	w := world{chains: map[string]tables.Chain{}, sets: map[string][]model.Member{}, entries: map[netip.Addr]tables.Action{}}
	for i, name := range worldChains {
		if i > 0 && rapid.IntRange(0, 5).Draw(t, "no "+name) == 0 {
			continue
		}
		w.chains[name] = tables.Chain{Name: name}
	}
	for _, name := range worldSets {
		if rapid.IntRange(0, 5).Draw(t, "no "+name) > 0 {
			w.sets[name] = rapid.Custom(func(t *rapid.T) []model.Member {
				var out []model.Member
				for i := range 4 {
					if rapid.Bool().Draw(t, "member") {
						out = append(out, model.AddressMember(worldAddress(i)))
					}
				}
				return out
			}).Draw(t, name)
		}
	}
	target := func(after int) (string, bool) {
		var names []string
		for i, name := range worldChains {
			if _, ok := w.chains[name]; ok && (i > after || loops && rapid.IntRange(0, 3).Draw(t, "back") == 0) {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			return "", false
		}
		return rapid.SampledFrom(names).Draw(t, "target"), true
	}
	for i, name := range worldChains {
		c, ok := w.chains[name]
		if !ok {
			continue
		}
		for n := range rapid.IntRange(0, 4).Draw(t, "rules of "+name) {
			r := tables.Rule{Action: rapid.SampledFrom([]tables.Action{tables.Accept{}, tables.Drop{}, tables.Return{}}).Draw(t, "action")}
			if to, ok := target(i); ok && rapid.Bool().Draw(t, "jump") {
				r.Action = tables.Jump{Chain: to}
			}
			if set := rapid.SampledFrom(worldSets).Draw(t, "set"); w.sets[set] != nil && rapid.Bool().Draw(t, "match") {
				r.Matches = []tables.Match{srcSet(model.IPv4, set)}
			}
			r.Comment = fmt.Sprint(n, rapid.IntRange(0, 2).Draw(t, "comment"))
			c.Rules = append(c.Rules, r)
		}
		w.chains[name] = c
	}
	for i := range 6 {
		switch to, ok := target(-1); rapid.IntRange(0, 4).Draw(t, "entry") {
		case 0:
		case 1:
			w.entries[worldAddress(i)] = tables.Accept{}
		default:
			if ok {
				w.entries[worldAddress(i)] = tables.Goto{Chain: to}
			}
		}
	}
	w.chains["d"] = tables.Chain{Name: "d", Rules: []tables.Rule{
		rule(tables.Dispatch{Family: model.IPv4, Side: tables.Source, Map: "m-4"}, ""), rule(tables.Drop{}, "no pod"),
	}}
	w.chains["forward"] = tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{rule(tables.Goto{Chain: "d"}, "")}}
	return w
}

func (w world) chain(name string) *tables.Chain {
	if c, ok := w.chains[name]; ok {
		return &c
	}
	return nil
}

// String describes the world.
func (w world) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.chains)) {
		c := w.chains[name]
		b.WriteString(c.Text())
	}
	for _, name := range slices.Sorted(maps.Keys(w.sets)) {
		fmt.Fprintf(&b, "set %s %v\n", name, w.sets[name])
	}
	for i := range 6 {
		if v := w.entries[worldAddress(i)]; v != nil {
			fmt.Fprintf(&b, "entry %s : %s\n", worldAddress(i), v)
		}
	}
	return b.String()
}

// want has the table want the world, and nothing else.
func (w world) want(t *Table) {
	t.CreateMap("m-4", model.IPv4)
	for i := range 6 {
		if v, ok := w.entries[worldAddress(i)]; ok {
			t.SetVerdict("m-4", worldAddress(i), v)
		} else {
			t.RemoveVerdict("m-4", worldAddress(i))
		}
	}
	for _, name := range append([]string{"d", "forward"}, worldChains...) {
		if c, ok := w.chains[name]; ok {
			t.UpdateChain(c)
		} else {
			t.RemoveChain(name)
		}
	}
	for _, name := range worldSets {
		members, ok := w.sets[name]
		if !ok {
			t.RemoveSet(name)
			continue
		}
		t.CreateSet(ipsets.Set{Name: name, Kind: model.Addresses, Family: model.IPv4})
		for i := range 4 {
			m := []model.Member{model.AddressMember(worldAddress(i))}
			if slices.Contains(members, m[0]) {
				t.AddMembers(name, m)
			} else {
				t.RemoveMembers(name, m)
			}
		}
	}
}

// kernelWorld is the kernel's state.
type kernelWorld struct {
	rules   map[string][]RuleSnapshot
	sets    map[string][]model.Member
	entries map[netip.Addr]tables.Action
}

func readWorld(t *rapid.T, ns namespace) kernelWorld {
	c, err := kernel.Dial(kernel.Options{Table: DefaultTable, NetNS: ns.fd, Seed: maphash.MakeSeed()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	state, err := c.Read(DefaultTable)
	if err != nil {
		t.Fatal(err)
	}
	k := kernelWorld{rules: map[string][]RuleSnapshot{}, sets: map[string][]model.Member{}, entries: map[netip.Addr]tables.Action{}}
	if err := c.ReadRuleSnapshots(DefaultTable, state.Chains, k.rules); err != nil {
		t.Fatal(err)
	}
	for name := range state.Chains {
		k.rules[name] = append([]RuleSnapshot{}, k.rules[name]...)
	}
	for name, s := range state.Sets {
		if s.Shape.Verdicts {
			for m, v := range s.Members {
				k.entries[m.Prefix.Addr()] = v
			}
			continue
		}
		k.sets[name] = []model.Member{}
		for m := range s.Members {
			k.sets[name] = append(k.sets[name], m)
		}
		slices.SortFunc(k.sets[name], model.Member.Compare)
	}
	return k
}

// has reports whether the kernel has the chain just so.
func (k kernelWorld) has(c tables.Chain) bool {
	rules, ok := k.rules[c.Name]
	return ok && slices.EqualFunc(c.Hashes(), rules, func(hash string, r RuleSnapshot) bool { return r.Hash == hash })
}

// closed reports whether the chain is closed.
func (k kernelWorld) closed(name string) bool {
	rules := k.rules[name]
	return len(rules) == 1 && rules[0].Verdict == "drop" && strings.HasPrefix(rules[0].Comment, "refused: ")
}

// judge checks that every reachable object is as in the last of the worlds, or closed, or unchanged. It
// returns the last world's objects that are not in the kernel as desired.
func (k kernelWorld) judge(t *rapid.T, was kernelWorld, worlds ...world) map[string]bool {
	latest := worlds[len(worlds)-1]
	seen := map[string]bool{}
	var visit func(name string)
	ask := func(set string) {
		if set != "m-4" {
			if !slices.Equal(k.sets[set], latest.sets[set]) && !slices.Equal(k.sets[set], was.sets[set]) {
				t.Fatalf("set %s is asked, and has %v", set, k.sets[set])
			}
			return
		}
		for a, v := range k.entries {
			wanted, ok := latest.entries[a]
			if !ok || v == (tables.Drop{}) {
				continue // an address without a pod may wait for its deletion
			}
			if v != wanted && v != was.entries[a] {
				t.Fatalf("entry %s leads to %s", a, v)
			}
			if to := tables.Target(v); to != "" {
				visit(to)
			}
		}
	}
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		isAsItWas := slices.EqualFunc(k.rules[name], was.rules[name], func(a, b RuleSnapshot) bool { return a.Handle == b.Handle })
		for i, w := range slices.Backward(worlds) {
			c, ok := w.chains[name]
			if !ok || !k.has(c) || i < len(worlds)-1 && !isAsItWas {
				continue
			}
			for u := range references(c.Rules) {
				if u.Kind == kernel.SetUnit {
					ask(u.Name)
				} else {
					visit(u.Name)
				}
			}
			return
		}
		if !k.closed(name) {
			t.Fatalf("chain %s is neither wanted so nor closed: %v", name, k.rules[name])
		}
	}
	if _, ok := k.rules["forward"]; ok {
		visit("forward")
	}
	return k.deviations(latest)
}

// asksNothingClosed checks that a chain that asks a closed chain is closed too, except for chains that cannot
// be.
func (k kernelWorld) asksNothingClosed(t *rapid.T, w world, cannot map[string]bool) {
	for name, c := range w.chains {
		for _, asked := range c.Asked(w.chain) {
			if c.Hook == nil && !cannot[name] && k.closed(asked.Name) && !k.closed(name) {
				t.Errorf("chain %s asks %s, which is closed, and does not: %v", name, asked.Name, k.rules[name])
			}
		}
	}
}

func (k kernelWorld) deviations(w world) map[string]bool {
	out := map[string]bool{}
	for name, c := range w.chains {
		if !k.has(c) {
			out[name] = true
		}
	}
	for name, members := range w.sets {
		if have, ok := k.sets[name]; !ok || !slices.Equal(have, members) {
			out[name] = true
		}
	}
	for a, v := range w.entries {
		if k.entries[a] != v {
			out[a.String()] = true
		}
	}
	return out
}
