package iptables

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// ipset records sets as commands of the ipset tool.
type ipset struct{ script strings.Builder }

var _ ipsets.Sets = (*ipset)(nil)

func (s *ipset) CreateSet(set ipsets.Set) {
	kind := map[model.GroupKind]string{model.Addresses: "hash:ip", model.Networks: "hash:net", model.AddressPorts: "hash:ip,port"}[set.Kind]
	family := map[model.Family]string{model.IPv4: "inet", model.IPv6: "inet6"}[set.Family]
	fmt.Fprintf(&s.script, "create %s %s family %s\n", ipsets.KernelName(set.Name), kind, family)
}

func (s *ipset) members(verb, name string, members []model.Member) {
	for _, m := range members {
		fmt.Fprintf(&s.script, "%s %s %s", verb, ipsets.KernelName(name), m.Prefix)
		if m.Protocol != model.AnyProtocol {
			fmt.Fprintf(&s.script, ",%s:%d", m.Protocol, m.Port)
		}
		s.script.WriteByte('\n')
	}
}

func (s *ipset) AddMembers(name string, members []model.Member)    { s.members("add", name, members) }
func (s *ipset) RemoveMembers(name string, members []model.Member) { s.members("del", name, members) }
func (s *ipset) RemoveSet(name string) {
	fmt.Fprintf(&s.script, "destroy %s\n", ipsets.KernelName(name))
}

// program carries the commands out.
func (s *ipset) program(t testing.TB, ns tablestest.Namespace) {
	t.Helper()
	ns.Feed(t, s.script.String(), "ipset", "restore")
	s.script.Reset()
}

func TestPackets(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		p := tablestest.NewPath(t, toolsOf(v)...)
		table, sets := host{p.Router, v}.open(t), &ipset{}
		tablestest.LoadPolicy(table, sets)
		sets.program(t, p.Router)
		apply(t, table)
		p.Want(t, tablestest.PolicyPackets())

		restores := table.tools.restores
		tablestest.ChangePolicySets(sets)
		sets.program(t, p.Router)
		wantSilent(t, table)
		if table.tools.restores != restores {
			t.Error("a change of members has run a restore")
		}
		p.Want(t, tablestest.ChangedPackets())
	})
}

// Earlier versions wrote shorter hashes into the comments, so an upgrade rewrites all rules.
// Meanwhile no denied packet passes.
func TestUpgradeFromShortHashes(t *testing.T) {
	written := regexp.MustCompile(`flx:([\w-]{14})[\w-]{8}`)
	eachVariant(t, func(t *testing.T, v Variant) {
		p := tablestest.NewPath(t, toolsOf(v)...)
		h, sets := host{p.Router, v}, &ipset{}
		old := h.open(t)
		tablestest.LoadPolicy(old, sets)
		sets.program(t, p.Router)
		apply(t, old)
		fresh := h.state(t)
		for _, f := range model.Families() {
			saved := h.save(t, f)
			if !written.MatchString(saved) {
				t.Fatalf("no rule has a hash of this version:\n%s", saved)
			}
			h.Feed(t, written.ReplaceAllString(saved, "flx:$1"), h.tool(f, "restore"))
		}
		earlier := h.state(t)
		p.Want(t, tablestest.PolicyPackets())

		table := h.open(t)
		tablestest.LoadPolicy(table, &ipset{})
		stop := p.Flood(t, netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.2.0.2"), 1)
		result := apply(t, table)
		if sent, arrived := stop(); arrived != 0 || sent == 0 {
			t.Errorf("%d of %d denied packets came through", arrived, sent)
		}
		p.Want(t, tablestest.PolicyPackets())
		if diff := cmp.Diff(fresh, h.state(t)); diff != "" || earlier == fresh || result.RulesAdded != result.Rules {
			t.Errorf("%+v (-fresh +upgraded):\n%s", result, diff)
		}
		wantSilent(t, table)
	})
}

// While a rule is replaced and its chain grows and shrinks, every packet is
// judged: there is no moment in which the table is not there.
func TestEditIsAtomic(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		p := tablestest.NewPath(t, toolsOf(v)...)
		table := host{p.Router, v}.open(t)
		want := func(i int) {
			rules := []tables.Rule{rule(tables.Drop{}, fmt.Sprintf("denied %d", i), proto(model.UDP), ports(1, 1))}
			for n := range i % 3 {
				rules = append([]tables.Rule{rule(tables.Return{}, fmt.Sprint("filler ", n), proto(model.SCTP))}, rules...)
			}
			table.UpdateChain(tables.Chain{Name: fmt.Sprintf("policy-%d", i%2), Rules: rules})
			table.UpdateChain(tables.Chain{Name: "forward", Hook: &tablestest.Forward, Rules: []tables.Rule{
				rule(tables.Accept{}, "sentinel", proto(model.UDP), ports(tablestest.Sentinel, tablestest.Sentinel)),
				rule(tables.Jump{Chain: fmt.Sprintf("policy-%d", i%2)}, ""),
			}})
			table.RemoveChain(fmt.Sprintf("policy-%d", (i+1)%2))
		}
		want(0)
		apply(t, table)
		stop := p.Flood(t, netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.2.0.2"), 1)
		for i := 1; i <= 60; i++ {
			want(i)
			apply(t, table)
		}
		sent, arrived := stop()
		if arrived != 0 || sent == 0 {
			t.Errorf("%d of %d denied packets came through", arrived, sent)
		}
		t.Logf("%d packets sent", sent)
	})
}
