package nftables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// faults are the kernel's refusals: of everything about an object, or only of its desired content; with or
// without a name.
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

// String describes the faults.
func (f faults) String() string {
	return fmt.Sprintf("content of %v, all of %v, unnamed %v", slices.Sorted(maps.Keys(f.content)), slices.Sorted(maps.Keys(f.all)), f.unnamed)
}

func (f faults) refuses(o ObjectError) error {
	if !f.meets(o) {
		return nil
	}
	if f.unnamed {
		return kernel.ErrUnnamed
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

// TestRandomFaults: with any refusals, at first or later, packets only meet objects that are unchanged, as
// desired, or closed. In the end only refused objects, and those that depend on them, deviate; without
// refusals, none.
func TestRandomFaults(t *testing.T) {
	ns := newNamespace(t)
	seeded.Check(t, func(r *rapid.T) {
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
			k := readWorld(r, ns)
			k.asksNothingClosed(r, w, ever.all)
			explained(r, w, ever, k.judge(r, kernelWorld{}, w), result)
			if again, err := f.Apply(t.Context()); err != nil || again.Messages != 0 || !slices.EqualFunc(again.Refused, result.Refused, sameRefusal) {
				r.Fatalf("once more: %v, %d messages, refused %+v", err, again.Messages, again.Refused)
			}
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

func sameRefusal(a, b tables.Refusal) bool {
	return a.Name == b.Name && a.Rule == b.Rule && slices.Equal(a.Closed, b.Closed)
}

// explained checks that each deviating object was refused at some time, or depends on a refused one.
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
		c := w.chains[name]
		for _, c := range append(c.Asked(w.chain), &c) {
			ok = ok || bad(c.Name)
			for u := range references(c.Rules) {
				ok = ok || u.Kind == kernel.SetUnit && bad(u.Name) || u.Kind == kernel.ChainUnit && f.all[u.Name] || u.Name == "m-4" && entryBad()
			}
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

// TestRandomLoops: with any loops of jumps, the kernel gets all chains except those that close a loop.
func TestRandomLoops(t *testing.T) {
	ns := newNamespace(t)
	looped := 0
	seeded.Check(t, func(r *rapid.T) {
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
			k := readWorld(r, ns)
			k.asksNothingClosed(r, w, nil)
			for name := range k.judge(r, kernelWorld{}, w) {
				c := w.chains[name]
				if !slices.Contains(refused, name) && !slices.ContainsFunc(c.Asked(w.chain), func(c *tables.Chain) bool { return slices.Contains(refused, c.Name) }) {
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
