package nftables

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// randomRule draws a rule of any match and action, with a liking for zeros.
func randomRule(nat bool) *rapid.Generator[tables.Rule] {
	return rapid.Custom(func(t *rapid.T) tables.Rule {
		f := rapid.SampledFrom(model.Families()).Draw(t, "family")
		r := tables.Rule{Comment: rapid.StringMatching(`[a-z/ é]{0,150}`).Draw(t, "comment")}
		for range rapid.IntRange(0, 4).Draw(t, "matches") {
			r.Matches = append(r.Matches, randomMatches(t, f)...)
		}
		mask := rapid.SampledFrom([]uint32{1, 0x10000000, 0xff00ff00, ^uint32(0)}).Draw(t, "mask")
		actions := []tables.Action{
			tables.Accept{},
			tables.Drop{},
			tables.Return{},
			tables.Jump{Chain: "x"},
			tables.Goto{Chain: "y"},
			tables.SetMark{Mask: mask, Value: mask & rapid.Uint32().Draw(t, "mark")},
			tables.SetMark{Mask: mask},
			tables.SetMarkAndReturn{Mask: mask, Value: mask & rapid.Uint32().Draw(t, "mark of the returning rule")},
			tables.SetConnMark{Mask: mask, Value: mask & rapid.Uint32().Draw(t, "connection mark")},
			tables.Report{Group: rapid.Uint16Range(1, 65535).Draw(t, "group"), Prefix: "x-y", Length: rapid.Uint32Range(1, 256).Draw(t, "length"), PerSecond: rapid.Uint32Range(1, 10000).Draw(t, "rate")},
			tables.Reject{With: tables.AdminProhibited, PerSecond: rapid.Uint32Range(1, 10000).Draw(t, "answers")},
			tables.Reject{With: tables.AdminProhibited, Family: f, PerSecond: 500},
			tables.Dispatch{Family: f, Side: randomSide(t), Map: ipsets.Name("m", f)},
		}
		if nat {
			actions = []tables.Action{tables.Masquerade{}, tables.Accept{}, tables.Jump{Chain: "z"}}
		}
		r.Action = rapid.SampledFrom(actions).Draw(t, "action")
		return r
	})
}

func randomSide(t *rapid.T) tables.Side {
	return rapid.SampledFrom([]tables.Side{tables.Source, tables.Destination}).Draw(t, "side")
}

// randomMatches draws a match, with the one that it needs before it.
func randomMatches(t *rapid.T, f model.Family) []tables.Match {
	negated := rapid.Bool().Draw(t, "negated")
	set := rapid.SampledFrom([]string{"a", "n"}).Draw(t, "set")
	mask := rapid.SampledFrom([]uint32{1, 0x00ff0000, ^uint32(0)}).Draw(t, "mask")
	first := rapid.SampledFrom([]uint16{0, 1, 80, 65535}).Draw(t, "first")
	last := max(first, rapid.SampledFrom([]uint16{0, 80, 8080, 65535}).Draw(t, "last"))
	icmp, _ := model.EchoRequest(f)
	protocol := proto(rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP, model.SCTP}).Draw(t, "protocol"))
	return rapid.SampledFrom([][]tables.Match{
		{protocol},
		{proto(icmp)},
		{proto(icmp), tables.MatchICMP{Type: 8, AnyCode: true}},
		{proto(icmp), tables.MatchICMP{Type: 128, Code: uint8(first)}},
		{tables.MatchProtocol{Protocol: model.ICMPv6, Negated: true}},
		{tables.MatchProtocol{Protocol: protocol.Protocol, Negated: true}},
		{proto(model.TCP), tables.MatchSYN{Negated: negated}},
		{proto(model.TCP), tables.MatchReset{}},
		{protocol, ports(first, last)},
		{protocol, ports(first, first)},
		{tables.MatchSet{Family: f, Side: randomSide(t), Set: ipsets.Name(model.GroupID(set), f)}},
		{tables.MatchPortSet{Family: f, Set: ipsets.Name("p", f)}},
		{tables.MatchPrefix{Side: randomSide(t), Prefix: onePrefix(t, f), Negated: negated}},
		{tables.MatchInterface{Side: randomSide(t), Negated: negated, Name: rapid.StringMatching(`[a-z0-9]{1,14}\*?`).Draw(t, "interface")}},
		{tables.MatchConnState{States: tables.ConnState(rapid.IntRange(1, 15).Draw(t, "states"))}},
		{tables.MatchConnOriginal{}},
		{tables.MatchConnTranslated{}},
		{tables.MatchMark{Mask: mask, Value: mask & rapid.SampledFrom([]uint32{0, 7, ^uint32(0)}).Draw(t, "value"), Negated: negated}},
		{tables.MatchConnMark{Mask: mask, Value: mask & rapid.SampledFrom([]uint32{0, 7, ^uint32(0)}).Draw(t, "connection mark")}},
	}).Draw(t, "match")
}

// loadTargets wants all that random rules refer to.
func loadTargets(table *Table) {
	for _, f := range model.Families() {
		table.CreateSet(ipsets.Set{Name: ipsets.Name("a", f), Kind: model.Addresses, Family: f})
		table.CreateSet(ipsets.Set{Name: ipsets.Name("n", f), Kind: model.Networks, Family: f})
		table.CreateSet(ipsets.Set{Name: ipsets.Name("p", f), Kind: model.AddressPorts, Family: f})
		table.CreateMap(ipsets.Name("m", f), f)
	}
	for _, name := range []string{"x", "y", "z"} {
		table.UpdateChain(tables.Chain{Name: name})
	}
}

// TestPredictionEchoAndDumpAgree: the predicted digest of a rule equals that of the kernel's echo and of
// every later dump, and rules that differ have digests that differ.
func TestPredictionEchoAndDumpAgree(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadTargets(table)
	bodies, forms := map[string]string{}, map[string]string{}
	seeded.Check(t, func(r *rapid.T) {
		filter := tables.Chain{Name: "filter", Rules: rapid.SliceOfN(randomRule(false), 1, 20).Draw(r, "filter")}
		nat := tables.Chain{
			Name: "nat", Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting},
			Rules: rapid.SliceOfN(randomRule(true), 0, 3).Draw(r, "nat"),
		}
		table.UpdateChain(filter)
		table.UpdateChain(nat)
		if _, err := table.Apply(t.Context()); err != nil {
			r.Fatal(err)
		}
		state, err := table.conn.Read(DefaultTable)
		if err != nil {
			r.Fatal(err)
		}
		for _, c := range []tables.Chain{filter, nat} {
			for i, wanted := range c.Rules {
				predicted, err := table.digests.Predict(wanted)
				if err != nil {
					r.Fatal(err)
				}
				body := strings.Join(strings.Fields(wanted.String()), " ")
				var m expression.Message
				if err := expression.Encode(&m, wanted); err != nil {
					r.Fatal(err)
				}
				form := string(expression.Canonical(nil, m.B))
				if other, ok := bodies[form]; ok && other != body {
					r.Fatalf("%q and %q have the same form %q", body, other, form)
				}
				if other, ok := forms[body]; ok && other != form {
					r.Fatalf("%q has the forms %q and %q", body, form, other)
				}
				bodies[form], forms[body] = body, form
				echo, dump := table.chains[c.Name].observed.Rules[i], state.Chains[c.Name].Rules[i]
				if echo.Digest != predicted || dump != echo {
					r.Fatalf("rule %s: predicted %#x, echoed %+v, read %+v", wanted, predicted, echo, dump)
				}
			}
		}
		table.Invalidate()
		if again, err := table.Apply(t.Context()); err != nil || again.Messages != 0 {
			r.Fatalf("second apply: %+v, %v", again, err)
		}
	})
	t.Logf("%d different bodies", len(bodies))
}

// TestSwappedRuleIsReplaced: the next start repairs a rule that was swapped under its comment while the agent
// was down, and keeps the rules beside it.
func TestSwappedRuleIsReplaced(t *testing.T) {
	ns := newNamespace(t)
	first := ns.open(t)
	loadExample(first)
	apply(t, first)
	listing := ns.list(t)
	for _, swap := range []struct{ in, by string }{
		{"tcp dport 80 counter packets 0 bytes 0 accept", "tcp dport 81 counter packets 0 bytes 0 accept"},
		{"ip saddr @aweb-4 tcp dport 80 counter packets 0 bytes 0 accept", "accept"},
		{"ip saddr @nblock-4 meta l4proto sctp counter packets 0 bytes 0 accept", "ip saddr @aweb-4 meta l4proto sctp counter packets 0 bytes 0 accept"},
		{"ip6 daddr fd00:10::/120 counter packets 0 bytes 0 drop", "ip6 saddr fd00:10::/120 counter packets 0 bytes 0 drop"},
		{"mark & 0x10000000 == 0x10000000 counter packets 0 bytes 0 jump pin-x/base-1", "mark & 0x10000000 == 0x0 counter packets 0 bytes 0 jump pin-x/base-1"},
		{"counter packets 0 bytes 0 jump pin-x/base-1", "counter packets 0 bytes 0 goto pin-x/base-1"},
		{"ip daddr vmap @to-pods-4", "ip saddr vmap @to-pods-4"},
		{"oifname \"flx-gw0\" counter", "iifname \"flx-gw0\" counter"},
		{"ct state established,related counter", "ct state established,related,new counter"},
	} {
		line := ""
		for l := range strings.Lines(ns.list(t, "-a")) {
			if strings.Contains(l, swap.in) && strings.Contains(l, "# handle") {
				line = l
			}
		}
		if line == "" {
			t.Fatalf("no rule has %q:\n%s", swap.in, ns.list(t, "-a"))
		}
		chain, rule, handle := chainOf(ns.list(t, "-a"), line), strings.TrimSpace(line), ""
		rule, handle, _ = strings.Cut(rule, " # handle ")
		ns.nft(t, fmt.Sprintf("replace rule inet felixlike %s handle %s %s", chain, handle, strings.Replace(rule, swap.in, swap.by, 1)))
		if ns.list(t) == listing {
			t.Fatalf("%q was not swapped", swap.in)
		}
		restarted := ns.open(t)
		loadExample(restarted)
		if r := apply(t, restarted); r.RulesAdded != 1 || r.RulesDeleted != 1 || r.Messages != 2 {
			t.Errorf("%q for %q: %+v", swap.by, swap.in, r)
		}
		if got := ns.list(t); got != listing {
			t.Errorf("%q for %q is not repaired:\n%s", swap.by, swap.in, got)
		}
		wantSilent(t, restarted)
		restarted.Invalidate()
		wantSilent(t, restarted)
	}
}

// TestSwappedRuleThatIsWantedLaterIsReplaced: the body of a rule is compared when the rule becomes desired,
// even long after it was read.
func TestSwappedRuleThatIsWantedLaterIsReplaced(t *testing.T) {
	ns, table := connected(t)
	listing := ns.list(t)
	c := table.chains["pin-x/base-1"]
	ns.nft(t, fmt.Sprintf("replace rule inet felixlike pin-x/base-1 handle %d accept comment %q", c.observed.Rules[4].Handle, c.desired.Rules[4].KernelComment()))

	second := ns.open(t)
	loadExample(second)
	second.UpdateChain(tables.Chain{Name: c.name, Rules: c.desired.Rules[:2]})
	if err := second.connect(); err != nil {
		t.Fatal(err)
	}
	if full, err := second.learn(&tables.Result{}); err != nil || !full {
		t.Fatal(full, err)
	}
	second.UpdateChain(*c.desired)
	if r := apply(t, second); r.FullRead || r.RulesAdded != 1 || r.RulesDeleted != 1 {
		t.Errorf("%+v", r)
	}
	if got := ns.list(t); got != listing {
		t.Errorf("not repaired:\n%s", got)
	}
}

// chainOf returns the chain of a listing that a line stands in.
func chainOf(listing, line string) string {
	before, _, _ := strings.Cut(listing, line)
	_, name, _ := strings.Cut(before[strings.LastIndex(before, "\tchain "):], "chain ")
	name, _, _ = strings.Cut(name, " ")
	return name
}

// A version that encodes a rule in another way leaves a rule with the right
// comment and the wrong body: it is replaced. A kernel that returns rules in a
// form of its own costs one rewriting a start, and none after it.
func TestOtherEncodingIsReplacedOnce(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)

	other := ns.open(t)
	if err := other.connect(); err != nil {
		t.Fatal(err)
	}
	// The kernel returns the same bodies, but other ones are predicted.
	other.digests.Seed = maphash.MakeSeed()
	loadExample(other)
	if r := apply(t, other); r.RulesAdded != exampleRules || r.RulesDeleted != exampleRules {
		t.Errorf("first read: %+v", r)
	}
	for range 2 {
		other.Invalidate()
		wantSilent(t, other)
	}
	other.UpdateChain(tables.Chain{Name: "to-outside", Hook: other.chains["to-outside"].desired.Hook, Rules: []tables.Rule{rule(tables.Masquerade{}, "all")}})
	if r := apply(t, other); r.Messages != 2 {
		t.Errorf("an edit: %+v", r)
	}
	other.Invalidate()
	wantSilent(t, other)

	table.UpdateChain(*other.chains["to-outside"].desired)
	table.Invalidate()
	wantSilent(t, table)
}

// A rule that an earlier version has encoded in another way, which means the same,
// is written anew by the next start, and only that one.
func TestEarlierEncodingIsReplaced(t *testing.T) {
	ns, table := connected(t)
	listing := ns.list(t)
	c := table.chains["to-pods"]
	wanted, old := c.desired.Rules[2], c.observed.Rules[2]
	if err := table.conn.Commit([]kernel.Op{{Kind: kernel.DeleteRule, Name: c.name, Handle: old.Handle}}); err != nil {
		t.Fatal(err)
	}
	// The whole address, masked, in place of its first bytes.
	library, err := nft.New(nft.WithNetNSFd(ns.fd))
	if err != nil {
		t.Fatal(err)
	}
	library.InsertRule(&nft.Rule{
		Table:    &nft.Table{Name: DefaultTable, Family: nft.TableFamilyINet},
		Chain:    &nft.Chain{Name: c.name},
		Position: c.observed.Rules[3].Handle,
		UserData: userdata.AppendString(nil, userdata.TypeComment, string(tables.AppendKernelComment(nil, wanted.Hash(), wanted.Comment))),
		Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: []byte{255, 255, 255, 0}, Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{10, 10, 0, 0}},
			&expr.Counter{},
			&expr.Verdict{Kind: expr.VerdictDrop},
		},
	})
	if err := library.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := ns.list(t); got != listing {
		t.Fatalf("the rule does not mean the same:\n%s", got)
	}
	restarted := ns.open(t)
	loadExample(restarted)
	if r := apply(t, restarted); r.RulesAdded != 1 || r.RulesDeleted != 1 || r.Messages != 2 {
		t.Errorf("%+v", r)
	}
	wantChain(t, restarted, *c.desired)
	restarted.Invalidate()
	wantSilent(t, restarted)
}
