package nftables

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
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
			tables.SetMarkAndReturn{Mask: mask, Value: mask & rapid.Uint32().Draw(t, "mark of what returns")},
			tables.SetConnMark{Mask: mask, Value: mask & rapid.Uint32().Draw(t, "connection mark")},
			tables.Report{Group: rapid.Uint16Range(1, 65535).Draw(t, "group"), Prefix: "x-y", Length: rapid.Uint32Range(1, 256).Draw(t, "length"), PerSecond: rapid.Uint32Range(1, 10000).Draw(t, "rate")},
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
	protocol := proto(rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP, model.SCTP}).Draw(t, "protocol"))
	return rapid.SampledFrom([][]tables.Match{
		{protocol},
		{proto(model.ICMPv6)},
		{tables.MatchProtocol{Protocol: protocol.Protocol, Negated: true}},
		{proto(model.TCP), tables.MatchSYN{Negated: negated}},
		{protocol, ports(first, last)},
		{protocol, ports(first, first)},
		{tables.MatchSet{Family: f, Side: randomSide(t), Set: ipsets.Name(model.GroupID(set), f)}},
		{tables.MatchPortSet{Family: f, Set: ipsets.Name("p", f)}},
		{tables.MatchPrefix{Side: randomSide(t), Prefix: onePrefix(t, f), Negated: negated}},
		{tables.MatchInterface{Side: randomSide(t), Negated: negated, Name: rapid.StringMatching(`[a-z0-9]{1,14}\*?`).Draw(t, "interface")}},
		{tables.MatchConnState{States: tables.ConnState(rapid.IntRange(1, 15).Draw(t, "states"))}},
		{tables.MatchConnOriginal{}},
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

// What is predicted of a rule is what the kernel echoes when it takes it and what
// it returns ever after; and rules that differ have digests that differ.
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
		state, err := table.conn.read(DefaultTable)
		if err != nil {
			r.Fatal(err)
		}
		for _, c := range []tables.Chain{filter, nat} {
			for i, wanted := range c.Rules {
				predicted, err := table.digests.predict(wanted)
				if err != nil {
					r.Fatal(err)
				}
				body := strings.Join(strings.Fields(wanted.String()), " ")
				form := string(table.digests.form)
				if other, ok := bodies[form]; ok && other != body {
					r.Fatalf("%q and %q have the same form %q", body, other, form)
				}
				if other, ok := forms[body]; ok && other != form {
					r.Fatalf("%q has the forms %q and %q", body, form, other)
				}
				bodies[form], forms[body] = body, form
				echo, dump := table.chains[c.Name].have.rules[i], state.chains[c.Name].rules[i]
				if echo.digest != predicted || dump != echo {
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

// A rule that is swapped under its comment while the agent is down is put right
// by the next start, and the rules beside it stay.
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

// What a rule claims to be is looked into when it is wanted, however long after it
// was read that is.
func TestSwappedRuleThatIsWantedLaterIsReplaced(t *testing.T) {
	ns, table := connected(t)
	listing := ns.list(t)
	c := table.chains["pin-x/base-1"]
	ns.nft(t, fmt.Sprintf("replace rule inet felixlike pin-x/base-1 handle %d accept comment %q", c.have.rules[4].handle, c.want.Rules[4].KernelComment()))

	second := ns.open(t)
	loadExample(second)
	second.UpdateChain(tables.Chain{Name: c.name, Rules: c.want.Rules[:2]})
	if err := second.connect(); err != nil {
		t.Fatal(err)
	}
	if full, err := second.learn(&tables.Result{}); err != nil || !full {
		t.Fatal(full, err)
	}
	second.UpdateChain(*c.want)
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
	other.digests.seed = maphash.MakeSeed()
	loadExample(other)
	if r := apply(t, other); r.RulesAdded != exampleRules || r.RulesDeleted != exampleRules {
		t.Errorf("first read: %+v", r)
	}
	for range 2 {
		other.Invalidate()
		wantSilent(t, other)
	}
	other.UpdateChain(tables.Chain{Name: "to-outside", Hook: other.chains["to-outside"].want.Hook, Rules: []tables.Rule{rule(tables.Masquerade{}, "all")}})
	if r := apply(t, other); r.Messages != 2 {
		t.Errorf("an edit: %+v", r)
	}
	other.Invalidate()
	wantSilent(t, other)

	table.UpdateChain(*other.chains["to-outside"].want)
	table.Invalidate()
	wantSilent(t, table)
}

// A rule that an earlier version has encoded in another way, which means the same,
// is written anew by the next start, and only that one.
func TestEarlierEncodingIsReplaced(t *testing.T) {
	ns, table := connected(t)
	listing := ns.list(t)
	c := table.chains["to-pods"]
	wanted, old := c.want.Rules[2], c.have.rules[2]
	if err := table.conn.flush([]op{{kind: deleteRule, chain: c, handle: old.handle}}); err != nil {
		t.Fatal(err)
	}
	// The whole address, masked, in place of its first bytes.
	m := &table.conn.batch
	m.Reset()
	m.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0, 1, 0, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
	m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE, 2, unix.NFPROTO_INET, 0)
	m.Text(unix.NFTA_RULE_TABLE, DefaultTable)
	m.Text(unix.NFTA_RULE_CHAIN, c.name)
	m.Uint64(unix.NFTA_RULE_POSITION, c.have.rules[3].handle)
	at := m.Nest(unix.NFTA_RULE_EXPRESSIONS)
	e := encoder{message: m}
	e.bind(model.IPv4)
	e.address(model.IPv4, tables.Destination)
	e.mask([]byte{255, 255, 255, 0}, []byte{0, 0, 0, 0})
	e.compare(unix.NFT_CMP_EQ, 10, 10, 0, 0)
	e.counter()
	if err := e.verdict(tables.Drop{}); err != nil {
		t.Fatal(err)
	}
	m.Close(at)
	comment(m, wanted, wanted.Hash())
	m.End()
	m.Begin(unix.NFNL_MSG_BATCH_END, 0, 3, 0, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
	exchange(t, table.conn, m.B)
	if got := ns.list(t); got != listing {
		t.Fatalf("the rule does not mean the same:\n%s", got)
	}
	restarted := ns.open(t)
	loadExample(restarted)
	if r := apply(t, restarted); r.RulesAdded != 1 || r.RulesDeleted != 1 || r.Messages != 2 {
		t.Errorf("%+v", r)
	}
	wantChain(t, restarted, *c.want)
	restarted.Invalidate()
	wantSilent(t, restarted)
}

// The form tells apart what must be, and nothing else.
func TestCanonicalForm(t *testing.T) {
	write := func(f func(m *message)) []byte {
		var m message
		f(&m)
		return m.B
	}
	same := func(name string, want bool, a, b func(m *message)) {
		t.Helper()
		if got := bytes.Equal(canonical(nil, write(a)), canonical(nil, write(b))); got != want {
			t.Errorf("%s: the forms are equal: %v", name, got)
		}
	}
	bitwise := func(order []int, operation bool, nested uint16) func(m *message) {
		return func(m *message) {
			element, data := m.expression("bitwise")
			parts := []func(){
				func() { m.Uint32(unix.NFTA_BITWISE_SREG, 1) },
				func() { m.Uint32(unix.NFTA_BITWISE_LEN, 4) },
				func() {
					at := len(m.B)
					m.Header(unix.NFTA_BITWISE_MASK|nested, 0)
					m.Data(unix.NFTA_DATA_VALUE, []byte{0, 0, 0, 0})
					m.Close(at)
				},
				func() {
					if operation {
						m.Uint32(6, 0)
					}
				},
			}
			for _, i := range order {
				parts[i]()
			}
			m.endExpression(element, data)
		}
	}
	plain := bitwise([]int{0, 1, 2, 3}, false, unix.NLA_F_NESTED)
	same("order", true, plain, bitwise([]int{2, 0, 3, 1}, false, unix.NLA_F_NESTED))
	same("defaults", true, plain, bitwise([]int{0, 1, 2, 3}, true, unix.NLA_F_NESTED))
	same("nested flag", true, plain, bitwise([]int{0, 1, 2, 3}, false, 0))
	same("less data", false, plain, bitwise([]int{0, 1}, false, 0))
	lookup := func(verdict bool) func(m *message) { return func(m *message) { m.lookup("s", verdict) } }
	same("destination of a lookup", false, lookup(true), lookup(false))
	compare := func(v ...byte) func(m *message) { return func(m *message) { m.compare(unix.NFT_CMP_EQ, v...) } }
	same("zeros of another length", false, compare(0), compare(0, 0))
	same("two for one", false, compare(0), func(m *message) { m.compare(unix.NFT_CMP_EQ, 0); m.compare(unix.NFT_CMP_EQ, 0) })
	same("counters", true, (*message).counter, func(m *message) {
		element, data := m.expression("counter")
		m.Uint64(unix.NFTA_COUNTER_PACKETS, 7)
		m.endExpression(element, data)
	})
	verdict := func(a tables.Action) func(m *message) { return func(m *message) { _ = m.verdict(a) } }
	actions := []tables.Action{tables.Accept{}, tables.Drop{}, tables.Return{}, tables.Jump{Chain: "a"}, tables.Goto{Chain: "a"}, tables.Goto{Chain: "b"}}
	for i, a := range actions {
		for _, b := range slices.Clone(actions)[i+1:] {
			same(fmt.Sprint(a, b), false, verdict(a), verdict(b))
		}
	}
}
