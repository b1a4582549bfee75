package iptables

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// variants are the variants that every test runs with.
var variants = []Variant{Legacy, NFT}

// eachVariant runs a test with both variants.
func eachVariant(t *testing.T, test func(t *testing.T, v Variant)) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) { test(t, v) })
	}
}

// host is a namespace as one variant sees it.
type host struct {
	tablestest.Namespace
	variant Variant
}

func newHost(t testing.TB, v Variant) host {
	t.Helper()
	h := host{tablestest.NewNamespace(t, toolsOf(v)...), v}
	h.addSets(t)
	return h
}

// toolsOf lists the programs that a test with the variant runs.
func toolsOf(v Variant) []string {
	tools := []string{"ipset"}
	for _, base := range []string{"iptables", "ip6tables"} {
		for _, program := range []string{"", "-save", "-restore"} {
			tools = append(tools, base+"-"+v.String()+program)
		}
	}
	return tools
}

// addSets makes the sets that the tests' rules name.
func (h host) addSets(t testing.TB) {
	t.Helper()
	var script strings.Builder
	for f, family := range map[model.Family]string{model.IPv4: "inet", model.IPv6: "inet6"} {
		fmt.Fprintf(&script, "create flx-aweb-%[1]s hash:ip family %[2]s\ncreate flx-nblock-%[1]s hash:net family %[2]s\ncreate flx-phttp-%[1]s hash:ip,port family %[2]s\n", f, family)
	}
	h.Feed(t, script.String(), "ipset", "restore")
}

// open returns a table with a stopped clock: the table retries refused objects when a
// test says so, not when the machine is slow.
func (h host) open(testing.TB) *Table {
	table := New(Options{Variant: h.variant, NetNS: h.FD})
	clock(table)
	return table
}

func (h host) tool(f model.Family, program string) string {
	own, _ := programs(h.variant, f, program)
	return own
}

// save returns the kernel's state of a family, as the tool prints it.
func (h host) save(t testing.TB, f model.Family, flags ...string) string {
	t.Helper()
	return h.Run(t, append([]string{h.tool(f, "save")}, flags...)...)
}

// restore carries commands out, as another program.
func (h host) restore(t testing.TB, f model.Family, commands string) {
	t.Helper()
	h.Feed(t, commands, h.tool(f, "restore"), "--noflush", "--wait=5")
}

// table carries commands on one table out, as another program, in each family.
func (h host) table(t testing.TB, table string, commands ...string) {
	t.Helper()
	for _, f := range model.Families() {
		h.restore(t, f, "*"+table+"\n"+strings.Join(commands, "\n")+"\nCOMMIT\n")
	}
}

var volatile = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]`)

// state is all that the kernel holds, without times and counters, in the format
// of txtar: a file for each table that has something in it, sorted.
func (h host) state(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	for _, f := range model.Families() {
		sections := strings.SplitAfter(volatile.ReplaceAllString(h.save(t, f), ""), "COMMIT\n")
		slices.Sort(sections)
		for _, s := range sections {
			if strings.Contains(s, "\n-A ") || strings.Contains(s, " -\n") {
				table, _, _ := strings.Cut(strings.TrimPrefix(s, "*"), "\n")
				fmt.Fprintf(&out, "-- IPv%s %s --\n%s", f, table, s)
			}
		}
	}
	return out.String()
}

func apply(t testing.TB, table *Table) tables.Result {
	t.Helper()
	r, err := table.Apply(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantSilent checks that the next Apply changes nothing.
func wantSilent(t testing.TB, table *Table) {
	t.Helper()
	restores := 0
	if table.tools != nil {
		restores = table.tools.restores
	}
	if r := apply(t, table); r.Messages != 0 || r.RulesAdded+r.RulesDeleted != 0 || len(r.Repaired) != 0 || table.tools.restores != restores {
		t.Errorf("apply without a change: %+v, %d restores", r, table.tools.restores-restores)
	}
}

var (
	rule   = tablestest.Rule
	srcSet = tablestest.SourceSet
	proto  = tablestest.Protocol
	ports  = tablestest.Ports
	prefix = tablestest.Prefix
	device = tablestest.Interface
)

// written returns the text of a rule.
func written(r tables.Rule) string { return render(r, r.Hash()) }

// loadExample wants every kind of match and action.
func loadExample(table *Table) {
	table.UpdateChain(tables.Chain{Name: "prerouting", Hook: &tablestest.Prerouting, Rules: []tables.Rule{
		rule(tables.Drop{}, "pods reach the host by the gateway port only", device(tables.Source, "fx-*", false)),
	}})
	table.UpdateChain(tables.Chain{Name: "forward", Hook: &tablestest.Forward, Rules: []tables.Rule{
		rule(tables.Accept{}, "known connections", tables.MatchConnState{States: tables.StateEstablished | tables.StateRelated}),
		rule(tables.Goto{Chain: "to-pods"}, "to the bridge", device(tables.Destination, "flx-gw0", false)),
		rule(tables.Drop{}, "", device(tables.Source, "eth0", true), tables.MatchConnState{States: tables.StateInvalid}),
	}})
	table.UpdateChain(tables.Chain{Name: "to-pods", Rules: []tables.Rule{
		rule(tables.Goto{Chain: "pods-in-x/base-1"}, "policies of the pod", prefix(tables.Destination, "10.10.0.1/32", false)),
		rule(tables.Goto{Chain: "pods-in-x/base-1"}, "policies of the pod", prefix(tables.Destination, "fd00:10::1/128", false)),
		rule(tables.Drop{}, "closed", prefix(tables.Destination, "10.10.0.0/24", false)),
		rule(tables.Drop{}, "closed", prefix(tables.Destination, "fd00:10::/120", false)),
		rule(tables.Drop{}, "", prefix(tables.Source, "10.0.0.0/9", true)),
		rule(tables.Drop{}, "", prefix(tables.Source, "0.0.0.0/0", false)),
		rule(tables.Drop{}, "", prefix(tables.Source, "fd00::1/128", false)),
		rule(tables.Drop{}, "", prefix(tables.Source, "fd00::/65", false)),
	}})
	table.UpdateChain(tables.Chain{Name: "pods-in-x/base-1", Rules: []tables.Rule{
		rule(tables.SetMark{Value: 0, Mask: 0x10000000}, "admin tier"),
		rule(tables.SetMark{Value: 0x10000000, Mask: 0x30000000}, ""),
		rule(tables.SetMark{Value: 7, Mask: ^uint32(0)}, ""),
		rule(tables.Jump{Chain: "pin-x/base-1"}, "x/base", tables.MatchMark{Value: 0x10000000, Mask: 0x10000000}),
		rule(tables.Return{}, "", tables.MatchMark{Value: 7, Mask: ^uint32(0), Negated: true}),
		rule(tables.Report{Group: 26552, Prefix: "denied-in", Length: 128, PerSecond: 100}, "somebody follows"),
		rule(tables.Report{Group: 1, Prefix: "few", Length: 64, PerSecond: 5}, ""),
		rule(tables.Drop{}, "isolated"),
	}})
	table.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{
		rule(tables.Accept{}, "x/base ingress[0]", srcSet(model.IPv4, "aweb-4"), proto(model.TCP), ports(80, 80)),
		rule(tables.Accept{}, "x/base ingress[0]", srcSet(model.IPv6, "aweb-6"), proto(model.UDP), ports(1000, 2000)),
		rule(tables.Accept{}, "x/base ingress[1]", srcSet(model.IPv4, "nblock-4"), proto(model.SCTP)),
		rule(tables.Accept{}, "x/base ingress[1]", srcSet(model.IPv6, "nblock-6"), proto(model.ICMPv6)),
		rule(tables.Accept{}, "x/base ingress[2]", srcSet(model.IPv4, "aweb-4"), tables.MatchPortSet{Family: model.IPv4, Set: "phttp-4"}),
		rule(tables.Accept{}, "x/base ingress[2]", tables.MatchPortSet{Family: model.IPv6, Set: "phttp-6"}),
	}})
	table.UpdateChain(tables.Chain{Name: "allowed", Hook: &tablestest.Allowed, Rules: []tables.Rule{
		rule(tables.Return{}, "marked before", tables.MatchConnMark{Value: 0x20000000, Mask: 0x20000000}),
		rule(tables.SetConnMark{Value: 0x20000000, Mask: 0x20000000}, "to a pod", device(tables.Destination, "flx-gw0", false),
			tables.MatchConnState{States: tables.StateNew | tables.StateEstablished}, tables.MatchConnOriginal{}),
	}})
	table.UpdateChain(tables.Chain{Name: "postrouting", Hook: &tablestest.Postrouting, Rules: []tables.Rule{
		rule(tables.Masquerade{}, "pods to outside",
			device(tables.Destination, "flx-gw0", true), prefix(tables.Source, "10.10.0.0/24", false)),
	}})
}
