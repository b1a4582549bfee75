package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// keysFor returns n addresses of a kind, in the order in which they come.
func keysFor(kind string, n int) []netip.Addr {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	prefix, host := netip.MustParsePrefix("10.10.0.0/16"), func(i int) uint64 { return uint64(i) + 2 }
	switch kind {
	case "IPv4 in a row":
	case "IPv6 in a row":
		prefix = netip.MustParsePrefix("fd00:10:244:1::/64")
	case "IPv4 random in /16":
		host = func(int) uint64 { return r.Uint64() }
	case "IPv6 random in /64":
		prefix, host = netip.MustParsePrefix("fd00:10:244:1::/64"), func(int) uint64 { return r.Uint64() }
	case "random order of /22":
		order := r.Perm(1024)
		prefix, host = netip.MustParsePrefix("10.10.4.0/22"), func(i int) uint64 { return uint64(order[i]) }
	}
	var out []netip.Addr
	seen := map[netip.Addr]bool{}
	for i := 0; len(out) < n; i++ {
		if a := addressIn(prefix, host(i)); !seen[a] {
			seen[a] = true
			out = append(out, a)
		}
	}
	return out
}

func TestTreeCosts(t *testing.T) {
	renderer := NewRenderer("flx-gw0", IPTablesNameLength)
	for _, kind := range []string{"IPv4 in a row", "IPv6 in a row", "IPv4 random in /16", "IPv6 random in /64"} {
		for _, n := range []int{10, 100, 1000, 10000} {
			addresses := keysFor(kind, n)
			tree := NewAddressTree(renderer.Names, model.Egress, model.FamilyOf(addresses[0]))
			for _, a := range addresses {
				tree.Set(a, verdictOf(a.String()))
			}
			f := newForest(t, tree)
			f.update()
			worst, sum, deepest := 0, 0, 0
			for _, a := range addresses {
				_, evaluated, depth := f.walk(ofAddress(a))
				worst, sum, deepest = max(worst, evaluated), sum+evaluated, max(deepest, depth)
			}
			t.Logf("%-19s %5d keys: %2d rules at most, %4.1f in the mean; %d chains deep, %4d chains",
				kind, n, worst, float64(sum)/float64(n), deepest, len(f.chains))
			limit := map[bool]int{true: 24, false: 26}[strings.HasSuffix(kind, "in a row")]
			if n <= 1000 && worst > limit {
				t.Errorf("%s, %d keys: %d rules at most, want %d", kind, n, worst, limit)
			}
		}
	}
	for _, n := range []int{10, 100, 1000} {
		tree := NewInterfaceTree(renderer.Names, model.Egress)
		r := rand.New(rand.NewPCG(1, 1))
		var names []string
		for range n {
			names = append(names, fmt.Sprintf("cali%011x", r.Uint64()>>20))
			if err := tree.Set(names[len(names)-1], verdictOf("x")); err != nil {
				t.Fatal(err)
			}
		}
		f := newForest(t, tree)
		f.update()
		worst, sum := 0, 0
		for _, name := range names {
			_, evaluated, _ := f.walk(ofInterface(name))
			worst, sum = max(worst, evaluated), sum+evaluated
		}
		t.Logf("%-19s %5d keys: %2d rules at most, %4.1f in the mean; %d chains", "interface names", n, worst, float64(sum)/float64(n), len(f.chains))
	}
}

func TestTreeGolden(t *testing.T) {
	renderer := NewRenderer("flx-gw0", IPTablesNameLength)
	var b strings.Builder
	for _, family := range model.Families() {
		tree := NewAddressTree(renderer.Names, model.Ingress, family)
		prefix := netip.MustParsePrefix("10.10.0.0/24")
		if family == model.IPv6 {
			prefix = netip.MustParsePrefix("fd00:10:244:1::/64")
		}
		for i := range uint64(20) {
			tree.Set(addressIn(prefix, 2*i), verdictOf("x/base"))
		}
		tree.Set(addressIn(prefix, 200), tables.Drop{})
		f := newForest(t, tree)
		f.update()
		b.WriteString(f.text())
	}
	tree := NewInterfaceTree(renderer.Names, model.Egress)
	for i := range 12 {
		if err := tree.Set(fmt.Sprintf("fx-db-%d", i), tables.Accept{}); err != nil {
			t.Fatal(err)
		}
	}
	f := newForest(t, tree)
	f.update()
	b.WriteString(f.text())
	golden(t, "tree.txt", b.String())
}

// BenchmarkTreeUpdate adds and removes one of a thousand endpoints.
func BenchmarkTreeUpdate(b *testing.B) {
	for _, kind := range []string{"IPv4 in a row", "IPv6 random in /64"} {
		b.Run(kind, func(b *testing.B) {
			addresses := keysFor(kind, 1001)
			tree := NewAddressTree(NewRenderer("flx-gw0", IPTablesNameLength).Names, model.Egress, model.FamilyOf(addresses[0]))
			for _, a := range addresses[1:] {
				tree.Set(a, tables.Accept{})
			}
			tree.Changes()
			for i := 0; b.Loop(); i++ {
				if i%2 == 0 {
					tree.Set(addresses[0], tables.Accept{})
				} else {
					tree.Remove(addresses[0])
				}
				tree.Changes()
			}
		})
	}
}
