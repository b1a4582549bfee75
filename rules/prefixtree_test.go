package rules

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// forest is a tree with the chains that its changes have led to.
type forest struct {
	t      testing.TB
	tree   interface{ Changes() TreeChanges }
	root   func() []tables.Rule
	chains map[string]tables.Chain
	// touched counts the chains of the last update, the root among them.
	touched int
}

var treeNames = regexp.MustCompile(fmt.Sprintf(`^[a-zA-Z0-9_./-]{1,%d}$`, IPTablesNameLength))

func newForest(t testing.TB, tree interface {
	Changes() TreeChanges
	Root() []tables.Rule
},
) *forest {
	return &forest{t: t, tree: tree, root: tree.Root, chains: map[string]tables.Chain{"root": {Name: "root", Rules: tree.Root()}}}
}

// update takes the tree's changes.
func (f *forest) update() {
	f.t.Helper()
	changes := f.tree.Changes()
	for _, c := range changes.Chains {
		f.chains[c.Name] = c
		if !treeNames.MatchString(c.Name) {
			f.t.Errorf("the name %q is none for iptables", c.Name)
		}
	}
	for _, name := range changes.Removed {
		if _, ok := f.chains[name]; !ok {
			f.t.Errorf("chain %s is removed, but is not there", name)
		}
		delete(f.chains, name)
	}
	f.touched = len(changes.Chains) + len(changes.Removed)
	if changes.Root {
		f.chains["root"] = tables.Chain{Name: "root", Rules: f.root()}
		f.touched++
	}
	for _, c := range f.chains {
		for _, name := range c.References() {
			if _, ok := f.chains[name]; !ok && !strings.HasPrefix(name, "pods-") {
				f.t.Errorf("chain %s refers to %s, which is not there", c.Name, name)
			}
		}
	}
}

// text renders all chains.
func (f *forest) text() string {
	var names []string
	for name := range f.chains {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		c := f.chains[name]
		b.WriteString(c.Text())
	}
	return b.String()
}

// walk evaluates the chains as netfilter does and returns the verdict ("" if
// the packet comes back from the root), how many rules it took, and how many
// chains deep the path went.
func (f *forest) walk(matches func(tables.Match) bool) (verdict string, evaluated, depth int) {
	var run func(name string, level int) (string, bool)
	run = func(name string, level int) (string, bool) {
		depth = max(depth, level)
		for _, r := range f.chains[name].Rules {
			evaluated++
			if !slices.ContainsFunc(r.Matches, func(m tables.Match) bool { return !matches(m) }) {
				target := tables.Target(r.Action)
				if _, inner := f.chains[target]; !inner {
					return r.Action.String(), true
				}
				v, done := run(target, level+1)
				if _, jump := r.Action.(tables.Jump); done || !jump {
					return v, done
				}
			}
		}
		return "", false
	}
	verdict, _ = run("root", 1)
	return verdict, evaluated, depth
}

func ofAddress(a netip.Addr) func(tables.Match) bool {
	return func(m tables.Match) bool {
		p, ok := m.(tables.MatchPrefix)
		return ok && p.Side == tables.Source && p.Prefix.Contains(a) != p.Negated
	}
}

func ofInterface(name string) func(tables.Match) bool {
	return func(m tables.Match) bool {
		i, ok := m.(tables.MatchInterface)
		if !ok || i.Side != tables.Source {
			return false
		}
		if rest, wild := strings.CutSuffix(i.Name, "*"); wild {
			return strings.HasPrefix(name, rest)
		}
		return name == i.Name
	}
}

func verdictOf(key string) tables.Action { return tables.Goto{Chain: "pods-out-" + key} }

// addressIn returns the address of a prefix with the given bits in its host part.
func addressIn(p netip.Prefix, host uint64) netip.Addr {
	b := p.Addr().AsSlice()
	for i := len(b) - 1; i >= 0; i-- {
		room := max(0, min(8, 8*(i+1)-p.Bits()))
		b[i] |= byte(host) & byte(1<<room-1)
		host >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Every sequence of updates ends in the chains that a fresh tree of the same
// keys has. Every key reaches its own verdict; an unknown key reaches none.
func TestAddressTreeProperties(t *testing.T) {
	seeded.Check(t, func(rt *rapid.T) {
		prefix := netip.MustParsePrefix(rapid.SampledFrom([]string{
			"10.10.0.0/24", "10.10.4.0/22", "0.0.0.0/0", "fd00:10:244:1::/120", "fd00:10:244:1::/64", "::/0",
		}).Draw(rt, "prefix"))
		addresses := rapid.Custom(func(rt *rapid.T) netip.Addr { return addressIn(prefix, rapid.Uint64().Draw(rt, "host")) })
		renderer := NewRenderer("flx-gw0", IPTablesNameLength)
		family := model.FamilyOf(prefix.Addr())
		tree := NewAddressTree(renderer.Names, model.Egress, family)
		f := newForest(t, tree)
		keys := map[netip.Addr]string{}
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			for range rapid.IntRange(0, 80).Draw(rt, "updates") {
				a := addresses.Draw(rt, "address")
				if known := slices.SortedFunc(maps.Keys(keys), netip.Addr.Compare); len(known) > 0 && rapid.IntRange(0, 2).Draw(rt, "kind") == 0 {
					a = rapid.SampledFrom(known).Draw(rt, "removed")
					tree.Remove(a)
					delete(keys, a)
					continue
				}
				keys[a] = fmt.Sprint(a, rapid.IntRange(0, 1).Draw(rt, "version"))
				tree.Set(a, verdictOf(keys[a]))
			}
			f.update()
		}
		fresh := NewAddressTree(renderer.Names, model.Egress, family)
		for a, key := range keys {
			fresh.Set(a, verdictOf(key))
			checkWalk(rt, f, a.String(), ofAddress(a), verdictOf(key).String())
		}
		again := newForest(t, fresh)
		again.update()
		if d := cmp.Diff(again.text(), f.text()); d != "" {
			rt.Fatalf("chains depend on the way to them (-fresh +updated):\n%s", d)
		}
		for range 50 {
			if a := addresses.Draw(rt, "unknown"); keys[a] == "" {
				checkWalk(rt, f, a.String(), ofAddress(a), "")
			}
		}
	})
}

func TestInterfaceTreeProperties(t *testing.T) {
	seeded.Check(t, func(rt *rapid.T) {
		names := rapid.StringMatching(rapid.SampledFrom([]string{`fx-[a-c]{0,2}-[0-9a-f]{1,8}`, `[ab*+@_]{1,15}`, `cali[0-9a-f]{11}`}).Draw(rt, "shape"))
		renderer := NewRenderer("flx-gw0", IPTablesNameLength)
		tree := NewInterfaceTree(renderer.Names, model.Egress)
		f := newForest(t, tree)
		keys := map[string]bool{}
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			for range rapid.IntRange(0, 60).Draw(rt, "updates") {
				name := names.Draw(rt, "name")
				if keys[name] {
					tree.Remove(name)
					delete(keys, name)
				} else if err := tree.Set(name, verdictOf(name)); err == nil {
					keys[name] = true
				} else if !strings.HasSuffix(name, "*") && !strings.HasSuffix(name, "+") {
					rt.Fatal(err)
				}
			}
			f.update()
		}
		fresh := NewInterfaceTree(renderer.Names, model.Egress)
		for name := range keys {
			if err := fresh.Set(name, verdictOf(name)); err != nil {
				rt.Fatal(err)
			}
			checkWalk(rt, f, name, ofInterface(name), verdictOf(name).String())
		}
		again := newForest(t, fresh)
		again.update()
		if d := cmp.Diff(again.text(), f.text()); d != "" {
			rt.Fatalf("chains depend on the way to them (-fresh +updated):\n%s", d)
		}
		for range 50 {
			if name := names.Draw(rt, "unknown"); !keys[name] {
				checkWalk(rt, f, name, ofInterface(name), "")
			}
		}
	})
}

func checkWalk(rt *rapid.T, f *forest, key string, matches func(tables.Match) bool, want string) {
	verdict, _, depth := f.walk(matches)
	if verdict != want {
		rt.Fatalf("%s: verdict %q, want %q", key, verdict, want)
	}
	if depth > 1+len(treeSizes) {
		rt.Fatalf("%s: the path is %d chains long", key, depth)
	}
}

// A node's endpoints come one by one, and go in another order: each touches
// the chain that lists it, and a few where a size is crossed.
func TestTreeUpdatesAreLocal(t *testing.T) {
	tree := NewAddressTree(NewRenderer("flx-gw0", IPTablesNameLength).Names, model.Egress, model.IPv4)
	f := newForest(t, tree)
	addresses := keysFor("random order of /22", 1000)
	total, worst, single := 0, 0, 0
	count := func() {
		f.update()
		total, worst = total+f.touched, max(worst, f.touched)
		if f.touched == 1 {
			single++
		}
	}
	for i, a := range addresses {
		tree.Set(a, verdictOf(a.String()))
		count()
		if i%100 == 0 {
			checkFresh(t, f, addresses[:i+1])
		}
	}
	rand.New(rand.NewPCG(2, 2)).Shuffle(len(addresses), func(i, j int) {
		addresses[i], addresses[j] = addresses[j], addresses[i]
	})
	for i, a := range addresses {
		tree.Remove(a)
		count()
		if i%100 == 0 {
			checkFresh(t, f, addresses[i+1:])
		}
	}
	updates := 2 * len(addresses)
	t.Logf("%d updates: one chain in %d %%, %.2f in the mean, at most %d", updates, 100*single/updates, float64(total)/float64(updates), worst)
	// A crossed size replaces a chain by two and changes the one above; a key
	// can cross several sizes at once.
	if worst > 10 || single < updates*4/5 {
		t.Errorf("%d updates touched %d chains, one of them %d", updates, total, worst)
	}
	if len(f.chains) != 1 || len(f.chains["root"].Rules) != 0 {
		t.Errorf("chains of an empty tree:\n%s", f.text())
	}
	tree.Set(addresses[0], verdictOf("a"))
	f.update()
	tree.Set(addresses[0], verdictOf("a"))
	tree.Remove(addresses[1])
	if f.update(); f.touched != 0 {
		t.Errorf("%d chains touched by nothing new", f.touched)
	}
}

// checkFresh checks that the chains are those of a fresh tree of the keys.
func checkFresh(t *testing.T, f *forest, keys []netip.Addr) {
	t.Helper()
	tree := NewAddressTree(NewRenderer("flx-gw0", IPTablesNameLength).Names, model.Egress, model.IPv4)
	for _, a := range keys {
		tree.Set(a, verdictOf(a.String()))
	}
	fresh := newForest(t, tree)
	fresh.update()
	if d := cmp.Diff(fresh.text(), f.text()); d != "" {
		t.Fatalf("%d keys: chains depend on the way to them (-fresh +updated):\n%s", len(keys), d)
	}
}
