package nftables

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/edit"
)

// TestRandomChains: after any sequence of chains, the kernel has the desired rules in the desired order, and
// Apply does not send unchanged rules again.
func TestRandomChains(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	names := []string{"a", "b", "c"}
	ruleOf := rapid.Custom(func(t *rapid.T) tables.Rule {
		// Few different rules, so that equal ones repeat.
		r := rule(tables.Return{}, fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "rule")))
		if rapid.IntRange(0, 9).Draw(t, "jumps") == 0 {
			r.Action = tables.Jump{Chain: "target"}
		}
		return r
	})
	seeded.Check(t, func(r *rapid.T) {
		table.UpdateChain(tables.Chain{Name: "target"})
		want := map[string][]string{"target": nil}
		fewest := 0
		for i, name := range names {
			old := slices.Clone(table.chain(name).hashes)
			if i > 0 && rapid.Bool().Draw(r, "removed") {
				table.RemoveChain(name)
				continue
			}
			c := tables.Chain{Name: name, Rules: rapid.SliceOfN(ruleOf, 0, 20).Draw(r, name)}
			if name == "b" {
				c.Hook = &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: rapid.SampledFrom([]int32{0, 1}).Draw(r, "priority")}
			}
			hashes := []string{}
			for _, x := range c.Rules {
				hashes = append(hashes, x.Hash())
			}
			want[name] = hashes
			table.UpdateChain(c)
			if name == "a" {
				script := edit.Minimal(old, hashes)
				for _, k := range script.Kept {
					if k < 0 {
						fewest++
					}
				}
				fewest += len(script.Deletes)
			}
		}
		// Sometimes as after a restart.
		restarted := rapid.IntRange(0, 4).Draw(r, "restart") == 0
		if restarted {
			table.Invalidate()
		}
		result, err := table.Apply(t.Context())
		if err != nil {
			r.Fatal(err)
		}
		if result.Messages < fewest {
			r.Fatalf("%d messages cannot have edited chain a, which needs %d", result.Messages, fewest)
		}
		checkChains(r, table, want)
		if again, err := table.Apply(t.Context()); err != nil || again.Messages != 0 {
			r.Fatalf("second apply: %+v, %v", again, err)
		}
	})
}

func checkChains(t *rapid.T, table *Table, want map[string][]string) {
	state, err := table.conn.Read(DefaultTable)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for name, c := range state.Chains {
		got[name] = nil
		for i, r := range c.Rules {
			got[name] = append(got[name], r.Hash)
			if known := table.chains[name].observed.Rules[i]; known != r {
				t.Fatalf("chain %s: rule %d is known as %+v, the kernel has %+v", name, i, known, r)
			}
		}
	}
	if diff := cmp.Diff(want, got, cmp.Transformer("empty", func(s []string) []string {
		if len(s) == 0 {
			return nil
		}
		return s
	})); diff != "" {
		t.Fatalf("rules (-want +got):\n%s", diff)
	}
}

// prefixes draws disjoint prefixes of a family, with a liking for neighbours
// and for the ends of the address space.
func prefixes(f model.Family) *rapid.Generator[[]netip.Prefix] {
	return rapid.Custom(func(t *rapid.T) []netip.Prefix {
		var b netipx.IPSetBuilder
		var out []netip.Prefix
		for range rapid.IntRange(0, 12).Draw(t, "prefixes") {
			p := onePrefix(t, f)
			set, err := b.IPSet()
			if err != nil {
				t.Fatal(err)
			}
			if !set.OverlapsPrefix(p) {
				b.AddPrefix(p)
				out = append(out, p)
			}
		}
		return out
	})
}

func onePrefix(t *rapid.T, f model.Family) netip.Prefix {
	bits := []int{0, 1, 2, 3, 8, 31, 32}
	top := addr("255.255.255.255")
	if f == model.IPv6 {
		bits, top = []int{0, 1, 2, 3, 64, 65, 127, 128}, addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	}
	raw := top.AsSlice()
	switch rapid.IntRange(0, 3).Draw(t, "where") {
	case 0: // the end
	case 1: // the beginning
		clear(raw)
		raw[len(raw)-1] = byte(rapid.IntRange(0, 3).Draw(t, "low"))
	default:
		clear(raw)
		raw[0] = rapid.SampledFrom([]byte{10, 11, 64, 128, 224, 254}).Draw(t, "first")
		raw[len(raw)-1] = byte(rapid.IntRange(0, 7).Draw(t, "last"))
	}
	weights := append(slices.Clone(bits), bits[len(bits)-1], bits[len(bits)-2], 8)
	p, err := addressOf(raw).Prefix(rapid.SampledFrom(weights).Draw(t, "bits"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRandomNetworks: after any sequence of prefixes in one set, the kernel holds them, and a lookup finds
// exactly the addresses that they contain.
func TestRandomNetworks(t *testing.T) {
	for _, f := range model.Families() {
		t.Run(f.String(), func(t *testing.T) {
			ns := newNamespace(t)
			table := ns.open(t)
			name := ipsets.Name("nrandom", f)
			table.CreateSet(ipsets.Set{Name: name, Kind: model.Networks, Family: f})
			var now []model.Member
			lookups := 0
			seeded.Check(t, func(r *rapid.T) {
				next := prefixes(f).Draw(r, "prefixes")
				table.RemoveMembers(name, now)
				now = nil
				for _, p := range next {
					now = append(now, model.Member{Prefix: p})
				}
				table.AddMembers(name, now)
				if _, err := table.Apply(t.Context()); err != nil {
					r.Fatal(err)
				}
				checkMembers(r, table, name, now)
				if again, err := table.Apply(t.Context()); err != nil || again.Messages != 0 {
					r.Fatalf("second apply: %+v, %v", again, err)
				}
				// A process for each lookup: not in all of the runs.
				if lookups++; lookups%5 == 0 {
					checkLookups(r, ns, name, next)
				}
			})
		})
	}
}

func checkMembers(t *rapid.T, table *Table, name string, want []model.Member) {
	state, err := table.conn.Read(DefaultTable)
	if err != nil {
		t.Fatal(err)
	}
	s := state.Sets[name]
	if s == nil || !s.Regular {
		t.Fatalf("set %s is not as we write sets: %+v", name, s)
	}
	var got []model.Member
	for m := range s.Members {
		got = append(got, m)
	}
	slices.SortFunc(got, model.Member.Compare)
	want = slices.Clone(want)
	slices.SortFunc(want, model.Member.Compare)
	if !slices.Equal(slices.Compact(want), got) {
		t.Fatalf("set %s holds %v, want %v", name, got, want)
	}
}

// checkLookups asks the kernel for the addresses at and beside the boundaries.
func checkLookups(t *rapid.T, ns namespace, name string, in []netip.Prefix) {
	asked := map[netip.Addr]bool{}
	for _, p := range in {
		for _, a := range []netip.Addr{p.Addr().Prev(), p.Addr(), netipx.PrefixLastIP(p), netipx.PrefixLastIP(p).Next()} {
			if !a.IsValid() || asked[a] || len(asked) > 12 {
				continue
			}
			asked[a] = true
			want := slices.ContainsFunc(in, func(p netip.Prefix) bool { return p.Contains(a) })
			c := exec.Command("ip", "netns", "exec", ns.name, "nft", "get", "element", "inet", DefaultTable, name, "{ "+a.String()+" }")
			out, err := c.CombinedOutput()
			if err != nil && !strings.Contains(string(out), "No such file or directory") {
				t.Fatalf("%v: %v\n%s", c, err, out)
			}
			if got := err == nil; got != want {
				t.Fatalf("the kernel finds %s in %v: %v, want %v\n%s", a, in, got, want, out)
			}
		}
	}
}

// Hash sets, concatenated sets and verdict maps by random changes.
func TestRandomMembers(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	table.UpdateChain(tables.Chain{Name: "x"})
	table.UpdateChain(tables.Chain{Name: "y"})
	verdicts := []tables.Action{tables.Accept{}, tables.Drop{}, tables.Jump{Chain: "x"}, tables.Goto{Chain: "x"}, tables.Goto{Chain: "y"}}
	for _, f := range model.Families() {
		table.CreateSet(ipsets.Set{Name: ipsets.Name("a", f), Kind: model.Addresses, Family: f})
		table.CreateSet(ipsets.Set{Name: ipsets.Name("p", f), Kind: model.AddressPorts, Family: f})
		table.CreateMap(ipsets.Name("m", f), f)
	}
	first := map[model.Family]string{model.IPv4: "10.0.0.0", model.IPv6: "fd00::"}
	seeded.Check(t, func(r *rapid.T) {
		for range rapid.IntRange(1, 20).Draw(r, "changes") {
			f := rapid.SampledFrom(model.Families()).Draw(r, "family")
			a := nth(first[f], rapid.IntRange(0, 5).Draw(r, "address"))
			m, p := model.AddressMember(a), model.AddressMember(a)
			p.Protocol = rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP, model.SCTP}).Draw(r, "protocol")
			p.Port = rapid.SampledFrom([]uint16{0, 80, 65535}).Draw(r, "port")
			switch rapid.IntRange(0, 5).Draw(r, "what") {
			case 0:
				table.AddMembers(ipsets.Name("a", f), []model.Member{m})
			case 1:
				table.RemoveMembers(ipsets.Name("a", f), []model.Member{m})
			case 2:
				table.AddMembers(ipsets.Name("p", f), []model.Member{p})
			case 3:
				table.RemoveMembers(ipsets.Name("p", f), []model.Member{p})
			case 4:
				table.SetVerdict(ipsets.Name("m", f), a, rapid.SampledFrom(verdicts).Draw(r, "verdict"))
			case 5:
				table.RemoveVerdict(ipsets.Name("m", f), a)
			}
		}
		if _, err := table.Apply(t.Context()); err != nil {
			r.Fatal(err)
		}
		state, err := table.conn.Read(DefaultTable)
		if err != nil {
			r.Fatal(err)
		}
		for name, s := range table.sets {
			if k := state.Sets[name]; !k.Regular || !cmp.Equal(k.Members, s.members.desired, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })) {
				r.Fatalf("%s holds %v, want %v", name, k.Members, s.members.desired)
			}
		}
		if again, err := table.Apply(t.Context()); err != nil || again.Messages != 0 {
			r.Fatalf("second apply: %+v, %v", again, err)
		}
	})
}

// TestExceptionsAreRanges: blocks with exceptions are ranges in the kernel and are read back as such. A
// restart writes nothing, and a lookup follows the longest prefix.
func TestExceptionsAreRanges(t *testing.T) {
	ns := newNamespace(t)
	excepted := func(list ...string) []model.Member {
		all := membersOf(list...)
		for i := range all {
			all[i].Except = true
		}
		return all
	}
	fill := func(table *Table) ipsets.Sets {
		sets := ipsets.WithRanges(table)
		sets.CreateSet(ipsets.Set{Name: "n-4", Kind: model.Networks, Family: model.IPv4})
		sets.CreateSet(ipsets.Set{Name: "n-6", Kind: model.Networks, Family: model.IPv6})
		sets.AddMembers("n-4", append(membersOf("0.0.0.0/1", "128.0.0.0/1", "10.1.2.0/24"), excepted("10.0.0.0/8", "10.1.2.3/32", "255.255.255.255/32")...))
		sets.AddMembers("n-6", append(membersOf("fd00::/8"), excepted("fd00::7/128")...))
		return sets
	}
	table := ns.open(t)
	sets := fill(table)
	apply(t, table)
	state, err := table.conn.Read(table.options.Table)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(state.Sets["n-4"].Members); n != 4 || !state.Sets["n-4"].Regular {
		t.Errorf("%d members: %v", n, state.Sets["n-4"].Members)
	}
	table.Invalidate()
	wantSilent(t, table)
	restarted := ns.open(t)
	fill(restarted)
	wantSilent(t, restarted)
	sets.RemoveMembers("n-4", excepted("10.0.0.0/8"))
	apply(t, table)
	table.Invalidate()
	wantSilent(t, table)
	if state, err = table.conn.Read(table.options.Table); err != nil || len(state.Sets["n-4"].Members) != 2 {
		t.Errorf("%v, %v", state.Sets["n-4"].Members, err)
	}
}

func TestEdgesOfTheAddressSpace(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	table.CreateSet(ipsets.Set{Name: "n-4", Kind: model.Networks, Family: model.IPv4})
	table.CreateSet(ipsets.Set{Name: "n-6", Kind: model.Networks, Family: model.IPv6})
	var now []model.Member
	for _, step := range [][]string{
		{"0.0.0.0/0"},
		{"0.0.0.0/1"},
		{"0.0.0.0/1", "128.0.0.0/1"},
		{"128.0.0.0/1"},
		{"128.0.0.0/2", "192.0.0.0/2"},
		{"255.255.255.255/32", "0.0.0.0/32"},
		{"0.0.0.0/32", "0.0.0.1/32", "0.0.0.2/31"},
		{"0.0.0.0/30"},
		{"0.0.0.0/0"},
		{},
	} {
		want := membersOf(step...)
		for _, p := range step { // the same in the other family
			q := netip.MustParsePrefix(p)
			raw := make([]byte, 16)
			copy(raw, q.Addr().AsSlice())
			bits := q.Bits()
			if bits == 32 || bits == 31 || bits == 30 {
				clear(raw)
				copy(raw[12:], q.Addr().AsSlice())
				if raw[12] == 255 {
					copy(raw, addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").AsSlice())
				}
				bits += 96
			}
			want = append(want, model.Member{Prefix: netip.PrefixFrom(addressOf(raw), bits)})
		}
		for _, m := range now {
			table.RemoveMembers(ipsets.Name("n", m.Family()), []model.Member{m})
		}
		for _, m := range want {
			table.AddMembers(ipsets.Name("n", m.Family()), []model.Member{m})
		}
		now = want
		apply(t, table)
		table.Invalidate()
		wantSilent(t, table)
	}
}
