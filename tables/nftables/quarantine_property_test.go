package nftables

import (
	"fmt"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
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
		rule(tables.Dispatch{Family: model.IPv4, Side: tables.Source, Map: "m-4"}, ""), rule(tables.Drop{}, "nobody"),
	}}
	w.chains["forward"] = tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{rule(tables.Goto{Chain: "d"}, "")}}
	return w
}

// String tells the world for people.
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

// faults are what the kernel refuses: of an object everything, or only its wanted
// content; named or not.
type faults struct {
	content, all map[string]bool
	unnamed      bool
	world        world
}

func drawFaults(t *rapid.T, w world) faults {
	f := faults{content: map[string]bool{}, all: map[string]bool{}, world: w, unnamed: rapid.Bool().Draw(t, "unnamed")}
	add := func(name string, most int) {
		switch rapid.IntRange(0, most).Draw(t, "fault of "+name) {
		case 1:
			f.content[name] = true
		case 2:
			f.all[name] = true
		}
	}
	for _, name := range worldChains {
		add(name, 8)
	}
	for _, name := range worldSets {
		add(name, 8)
	}
	for i := range 6 {
		add(worldAddress(i).String(), 10)
	}
	if rapid.IntRange(0, 9).Draw(t, "fault of d") == 0 {
		f.content["d"] = true
	}
	if rapid.IntRange(0, 15).Draw(t, "fault of m") == 0 {
		f.all["m-4"] = true
	}
	return f
}

// String tells the faults for people.
func (f faults) String() string {
	return fmt.Sprintf("content of %v, all of %v, unnamed %v", slices.Sorted(maps.Keys(f.content)), slices.Sorted(maps.Keys(f.all)), f.unnamed)
}

func (f faults) refuses(o ObjectError) error {
	if !f.meets(o) {
		return nil
	}
	if f.unnamed {
		return ErrUnnamed
	}
	return errInjected
}

func (f faults) meets(o ObjectError) bool {
	if f.all[o.Name] {
		return true
	}
	switch o.Object {
	case "chain":
		return f.content[o.Name] && strings.HasPrefix(o.Rule, "rule ") && strings.Contains(o.Rule, "(") && !strings.Contains(o.Rule, "refused: ")
	case "set":
		return f.content[o.Name]
	case "map":
		return f.meetsEntry(o.Rule)
	}
	return false
}

func (f faults) meetsEntry(text string) bool {
	var n int
	var first, last string
	if _, err := fmt.Sscanf(text, "one of %d members from %s to %s", &n, &first, &last); err == nil {
		for i := range 6 {
			a := worldAddress(i)
			if (f.content[a.String()] || f.all[a.String()]) && !a.Less(addr(first)) && !addr(last).Less(a) {
				return true
			}
		}
		return false
	}
	fields := strings.Fields(text) // entry ADDRESS : VERDICT...
	if len(fields) < 4 || f.all[fields[1]] {
		return len(fields) >= 4
	}
	v := f.world.entries[addr(fields[1])]
	return f.content[fields[1]] && v != nil && strings.HasSuffix(text, " : "+v.String())
}

// kernelWorld is what the kernel holds.
type kernelWorld struct {
	rules   map[string][]RuleSnapshot
	sets    map[string][]model.Member
	entries map[netip.Addr]tables.Action
}

func readWorld(t *rapid.T, ns namespace) kernelWorld {
	c, err := dial(Options{Table: DefaultTable, NetNS: ns.fd}, maphash.MakeSeed())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.close() }()
	state, err := c.read(DefaultTable)
	if err != nil {
		t.Fatal(err)
	}
	k := kernelWorld{rules: map[string][]RuleSnapshot{}, sets: map[string][]model.Member{}, entries: map[netip.Addr]tables.Action{}}
	if err := c.snapshotRules(DefaultTable, state.chains, k.rules); err != nil {
		t.Fatal(err)
	}
	for name := range state.chains {
		k.rules[name] = append([]RuleSnapshot{}, k.rules[name]...)
	}
	for name, s := range state.sets {
		if s.shape.verdicts {
			for m, v := range s.members {
				k.entries[m.Prefix.Addr()] = v
			}
			continue
		}
		k.sets[name] = []model.Member{}
		for m := range s.members {
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

// closed reports whether the chain stands closed.
func (k kernelWorld) closed(name string) bool {
	rules := k.rules[name]
	return len(rules) == 1 && rules[0].Verdict == "drop" && strings.HasPrefix(rules[0].Comment, "refused: ")
}

// judge checks that whatever packets can come to is as in the last of the worlds,
// or closed, or still as it was. Of the last world's objects it returns those that are
// not in the kernel as wanted.
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
				continue // an address that nobody has any more may wait for its deletion
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
				if u.kind == setUnit {
					ask(u.name)
				} else {
					visit(u.name)
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

// Whatever the kernel refuses, at first or later: at no time can packets come to
// something that is neither as it was, nor as wanted, nor closed. In the end only
// what is refused, and what relies on it, is not as wanted; and when the fault is
// gone, nothing.
func TestRandomFaults(t *testing.T) {
	ns := newNamespace(t)
	rapid.Check(t, func(r *rapid.T) {
		f := ns.openFaulty(t)
		if err := f.Remove(t.Context()); err != nil {
			r.Fatal(err)
		}
		f.limit = rapid.SampledFrom([]int{maxBatch, 5, 20}).Draw(r, "limit")
		var worlds []world
		ever := faults{content: map[string]bool{}, all: map[string]bool{}}
		for step := range rapid.IntRange(1, 3).Draw(r, "steps") {
			w := drawWorld(r, false)
			fault := drawFaults(r, w)
			maps.Copy(ever.content, fault.content)
			maps.Copy(ever.all, fault.all)
			worlds = append(worlds, w)
			asked, was := 0, readWorld(r, ns)
			f.refuses = func(o ObjectError) error {
				if asked++; asked%7 == 1 {
					readWorld(r, ns).judge(r, was, worlds...)
				}
				return fault.refuses(o)
			}
			w.want(f.Table)
			f.now = f.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(r, "seconds")) * time.Second)
			r.Logf("step %d: limit %d\n%s%s", step, f.limit, w, fault)
			result, err := f.Apply(t.Context())
			for _, x := range result.Refused {
				r.Logf("refused: %s %s: %s closed %v", x.Object, x.Name, x.Rule, x.Closed)
			}
			if err != nil {
				if fault.content["d"] || fault.all["m-4"] {
					r.Skip("the dispatch cannot be closed")
				}
				r.Fatalf("step %d: %v", step, err)
			}
			deviates := readWorld(r, ns).judge(r, kernelWorld{}, w)
			explained(r, w, ever, deviates, result)
		}
		f.refuses = nil
		f.now = f.now.Add(time.Hour)
		if result, err := f.Apply(t.Context()); err != nil || len(result.Refused) != 0 {
			r.Fatalf("the fault is gone: %v, %+v", err, result.Refused)
		}
		if deviates := readWorld(r, ns).judge(r, kernelWorld{}, worlds...); len(deviates) != 0 {
			r.Fatalf("the fault is gone, but not as wanted: %v", deviates)
		}
		f.Invalidate()
		if result, err := f.Apply(t.Context()); err != nil || result.Messages != 0 {
			r.Fatalf("another apply: %v, %+v", err, result)
		}
	})
}

// explained checks that what deviates was refused at some time, or relies on what
// was.
func explained(t *rapid.T, w world, f faults, deviates map[string]bool, result tables.Result) {
	bad := func(name string) bool { return f.content[name] || f.all[name] }
	entryBad := func() bool {
		for i := range 6 {
			if bad(worldAddress(i).String()) {
				return true
			}
		}
		return false
	}
	for name := range deviates {
		ok := bad(name)
		for u := range references(w.chains[name].Rules) {
			ok = ok || u.kind == setUnit && bad(u.name) || u.kind == chainUnit && f.all[u.name] || u.name == "m-4" && entryBad()
		}
		if a, err := netip.ParseAddr(name); err == nil {
			ok = ok || f.all["m-4"] || f.all[tables.Target(w.entries[a])] || entryBad()
		}
		if !ok {
			t.Errorf("%s is not as wanted, and nothing is wrong with it: %+v", name, result.Refused)
		}
	}
	if len(deviates) > 0 && len(result.Refused) == 0 {
		t.Errorf("%v are not as wanted, and nothing is said to be refused", deviates)
	}
}

// Whatever loops of jumps are wanted, the kernel gets all chains but those that
// close them.
func TestRandomLoops(t *testing.T) {
	ns := newNamespace(t)
	looped := 0
	rapid.Check(t, func(r *rapid.T) {
		f := ns.openFaulty(t)
		if err := f.Remove(t.Context()); err != nil {
			r.Fatal(err)
		}
		f.limit = rapid.SampledFrom([]int{maxBatch, 10}).Draw(r, "limit")
		var worlds []world
		for range rapid.IntRange(1, 3).Draw(r, "steps") {
			was := readWorld(r, ns)
			w := drawWorld(r, true)
			worlds = append(worlds, w)
			asked := 0
			f.refuses = func(ObjectError) error {
				if asked++; asked%11 == 1 {
					readWorld(r, ns).judge(r, was, worlds...)
				}
				return nil
			}
			w.want(f.Table)
			f.now = f.now.Add(time.Second)
			result, err := f.Apply(t.Context())
			if err != nil {
				r.Fatal(err)
			}
			var refused []string
			for _, x := range result.Refused {
				refused = append(refused, x.Name)
				if entry := strings.Fields(x.Rule); x.Object == "map" {
					// It leads to a loop that nothing led to before.
					refused = append(refused, entry[1])
				}
			}
			for name := range readWorld(r, ns).judge(r, kernelWorld{}, w) {
				if !slices.Contains(refused, name) {
					r.Errorf("%s is not as wanted: %+v", name, result.Refused)
				}
			}
			if len(refused) > 0 {
				looped++
			}
		}
		for _, name := range worldChains {
			f.RemoveChain(name)
		}
		for i := range 6 {
			f.RemoveVerdict("m-4", worldAddress(i))
		}
		if result, err := f.Apply(t.Context()); err != nil || len(result.Refused) != 0 {
			r.Fatalf("without chains: %v, %+v", err, result.Refused)
		}
	})
	t.Logf("loops in %d worlds", looped)
}
