package nftables

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// namespace is a fresh network namespace that goes with the test.
type namespace struct {
	name string
	fd   int
}

var namespaces atomic.Int32

func newNamespace(t testing.TB) namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs the tool %s", tool)
		}
	}
	name := fmt.Sprintf("flx-nft-%d-%d", os.Getpid(), namespaces.Add(1))
	command(t, "", "ip", "netns", "add", name)
	t.Cleanup(func() { command(t, "", "ip", "netns", "del", name) })
	f, err := os.Open("/run/netns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return namespace{name, int(f.Fd())}
}

// run runs a command in the namespace and returns its output.
func (n namespace) run(t testing.TB, args ...string) string {
	t.Helper()
	return command(t, "", "ip", append([]string{"netns", "exec", n.name}, args...)...)
}

// nft runs a script of nft in the namespace.
func (n namespace) nft(t testing.TB, script string) {
	t.Helper()
	command(t, script, "ip", "netns", "exec", n.name, "nft", "-f", "-")
}

// list returns nft's listing of our table.
func (n namespace) list(t testing.TB, flags ...string) string {
	t.Helper()
	return n.run(t, append(append([]string{"nft"}, flags...), "list", "table", "inet", DefaultTable)...)
}

func command(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Stdin = strings.NewReader(stdin)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// open returns a driver for the namespace's table.
func (n namespace) open(t testing.TB) *Table {
	t.Helper()
	table := New(Options{NetNS: n.fd})
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

func apply(t testing.TB, table *Table) tables.Result {
	t.Helper()
	r, err := table.Apply(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantSilent checks that the next Apply sends nothing.
func wantSilent(t testing.TB, table *Table) {
	t.Helper()
	if r := apply(t, table); r.Messages != 0 || r.RulesAdded+r.RulesDeleted+r.ElementsAdded+r.ElementsDeleted != 0 {
		t.Errorf("apply without a change sent %+v", r)
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func membersOf(list ...string) []model.Member {
	var out []model.Member
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, model.Member{Prefix: p})
		} else {
			out = append(out, model.AddressMember(addr(s)))
		}
	}
	return out
}

func triple(a string, p model.Protocol, port uint16) model.Member {
	m := model.AddressMember(addr(a))
	m.Protocol, m.Port = p, port
	return m
}

func rule(a tables.Action, comment string, matches ...tables.Match) tables.Rule {
	return tables.Rule{Matches: matches, Action: a, Comment: comment}
}

func srcSet(f model.Family, name string) tables.MatchSet {
	return tables.MatchSet{Family: f, Side: tables.Source, Set: name}
}

func proto(p model.Protocol) tables.MatchProtocol { return tables.MatchProtocol{Protocol: p} }

func ports(first, last uint16) tables.MatchDestinationPorts {
	return tables.MatchDestinationPorts{First: first, Last: last}
}

func prefix(side tables.Side, p string, negated bool) tables.MatchPrefix {
	return tables.MatchPrefix{Side: side, Prefix: netip.MustParsePrefix(p), Negated: negated}
}

var forwardHook = &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward}

// exampleRules is the number of rules that loadExample wants.
const exampleRules = 29

// loadExample wants every kind of object, match and action.
func loadExample(table *Table) {
	for _, f := range model.Families() {
		table.CreateSet(ipsets.Set{Name: ipsets.Name("aweb", f), Kind: model.Addresses, Family: f})
		table.CreateSet(ipsets.Set{Name: ipsets.Name("nblock", f), Kind: model.Networks, Family: f})
		table.CreateSet(ipsets.Set{Name: ipsets.Name("phttp", f), Kind: model.AddressPorts, Family: f})
		table.CreateMap("to-pods-"+f.String(), f)
	}
	table.AddMembers("aweb-4", membersOf("10.0.0.1", "10.0.0.2"))
	table.AddMembers("aweb-6", membersOf("fd00::1"))
	table.AddMembers("nblock-4", membersOf("10.1.0.0/16", "10.2.0.0/15", "192.0.2.7/32", "128.0.0.0/2", "224.0.0.0/3"))
	table.AddMembers("nblock-6", membersOf("2001:db8::/33", "2001:db8:8000::/33", "fd00::5/128", "ff00::/8"))
	table.AddMembers("phttp-4", []model.Member{triple("10.0.0.1", model.TCP, 80), triple("10.0.0.2", model.SCTP, 5000)})
	table.AddMembers("phttp-6", []model.Member{triple("fd00::1", model.UDP, 53)})
	table.SetVerdict("to-pods-4", addr("10.0.0.1"), tables.Goto{Chain: "pods-in-x/base-1"})
	table.SetVerdict("to-pods-4", addr("10.0.0.2"), tables.Accept{})
	table.SetVerdict("to-pods-4", addr("10.0.0.3"), tables.Drop{})
	table.SetVerdict("to-pods-6", addr("fd00::1"), tables.Jump{Chain: "pods-in-x/base-1"})

	table.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
		rule(tables.Accept{}, "known connections", tables.MatchConnState{States: tables.StateEstablished | tables.StateRelated}),
		rule(tables.Goto{Chain: "to-pods"}, "to the bridge", tables.MatchInterface{Side: tables.Destination, Name: "flx-gw0"}),
		rule(tables.Drop{}, "", tables.MatchInterface{Side: tables.Source, Name: "eth0", Negated: true}, tables.MatchConnState{States: tables.StateInvalid}),
	}})
	table.UpdateChain(tables.Chain{Name: "to-pods", Rules: []tables.Rule{
		rule(tables.Dispatch{Family: model.IPv4, Side: tables.Destination, Map: "to-pods-4"}, "policies of the pod"),
		rule(tables.Dispatch{Family: model.IPv6, Side: tables.Destination, Map: "to-pods-6"}, "policies of the pod"),
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
		rule(tables.SetMarkAndReturn{Value: 0x40000000, Mask: 0x40000000}, "may leave", proto(model.TCP)),
		rule(tables.Jump{Chain: "pin-x/base-1"}, "x/base", tables.MatchMark{Value: 0x10000000, Mask: 0x10000000}),
		rule(tables.Return{}, "", tables.MatchMark{Value: 7, Mask: ^uint32(0), Negated: true}),
		rule(tables.Drop{}, "isolated"),
	}})
	table.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{
		rule(tables.Accept{}, "x/base ingress[0]", srcSet(model.IPv4, "aweb-4"), proto(model.TCP), ports(80, 80)),
		rule(tables.Accept{}, "x/base ingress[0]", srcSet(model.IPv6, "aweb-6"), proto(model.UDP), ports(1000, 2000)),
		rule(tables.Accept{}, "x/base ingress[1]", srcSet(model.IPv4, "nblock-4"), proto(model.SCTP)),
		rule(tables.Accept{}, "x/base ingress[1]", srcSet(model.IPv6, "nblock-6"), proto(model.ICMPv6)),
		rule(tables.Accept{}, "x/base ingress[2]", srcSet(model.IPv4, "aweb-4"), tables.MatchPortSet{Family: model.IPv4, Set: "phttp-4"}),
		rule(tables.Accept{}, "x/base ingress[2]", tables.MatchPortSet{Family: model.IPv6, Set: "phttp-6"}),
		rule(tables.Accept{}, "ping", srcSet(model.IPv4, "aweb-4"), proto(model.ICMP), tables.MatchICMP{Type: 8, AnyCode: true}),
		rule(tables.Accept{}, "ping", proto(model.ICMPv6), tables.MatchICMP{Type: 128, Code: 0}),
		rule(tables.Accept{}, "", proto(model.ICMP), tables.MatchICMP{Type: 3, Code: 4}),
		rule(tables.Accept{}, "", proto(model.ICMPv6), tables.MatchICMP{Type: 254, Code: 255}),
	}})
	table.UpdateChain(tables.Chain{
		Name: "to-outside", Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting, Priority: 100},
		Rules: []tables.Rule{rule(tables.Masquerade{}, "pods to outside",
			tables.MatchInterface{Side: tables.Destination, Name: "flx-gw0", Negated: true}, prefix(tables.Source, "10.10.0.0/24", false))},
	})
}

// loadReports wants a chain that reports, beside the example.
func loadReports(table *Table) {
	table.UpdateChain(tables.Chain{Name: "denied-in", Rules: []tables.Rule{
		rule(tables.Report{Group: 26552, Prefix: "denied-in", Length: 128, PerSecond: 100}, "a client follows"),
		rule(tables.Drop{}, "denied"),
	}})
}

// nth returns the address that is n behind the first.
func nth(first string, n int) netip.Addr {
	b := addr(first).AsSlice()
	for i := len(b) - 1; n > 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	return addressOf(b)
}

// addressOf returns the address of 4 or 16 bytes.
func addressOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}
