package rules

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func testNode() *model.Node {
	return &model.Node{
		Name:      "node1",
		Addresses: []netip.Addr{netip.MustParseAddr("192.168.50.11")},
		PodCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24"), netip.MustParsePrefix("fd00:10::a0a:0/120")},
	}
}

func np(name string) model.PolicyID {
	return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: name}
}

func always(model.PolicyID) bool { return true }

func text(chains ...tables.Chain) string {
	var b strings.Builder
	for _, c := range chains {
		b.WriteString(c.Text())
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

func TestStaticChains(t *testing.T) {
	r := NewRenderer("flx-gw0", 64)
	chains := append(r.Node().Static(testNode()), r.Node().Sources(testNode(), true)...)
	golden(t, "static.txt", text(chains...))
}

// TestPolicyOnlyChains: where another CNI plugin owns the interfaces, in the form of both drivers.
func TestPolicyOnlyChains(t *testing.T) {
	for name, length := range map[string]int{"policyonly.txt": NFTablesNameLength, "policyonly-iptables.txt": IPTablesNameLength} {
		r := NewRenderer("flx-gw0", length).Between(model.PolicyOnly)
		chains := append(r.Node().Static(testNode()), r.Node().Passed())
		if name == "policyonly.txt" {
			tree := NewInterfaceTree(r.Names, model.Egress)
			if err := tree.Set("cni0", PodInterfaceVerdict("cni0")); err != nil {
				t.Fatal(err)
			}
			chains = append(chains[:len(chains)-1], append(r.Node().PodSources(tree.Root()), PodInterfaceChain("cni0"))...)
		}
		golden(t, name, text(chains...))
	}
}

func TestHostChains(t *testing.T) {
	snat := &SNAT{Address: netip.MustParseAddr("192.168.50.11"), Bridge: "br-phy"}
	for name, c := range map[string]struct {
		routed bool
		snat   *SNAT
	}{"host.txt": {}, "host-routed.txt": {routed: true}, "host-snat.txt": {snat: snat}} {
		golden(t, name, text(NewRenderer("flx-gw0", 64).Routed(c.routed).Node().Host(Host{
			Node: testNode(), Masquerade: true, SNAT: c.snat,
			Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/112")},
			Hairpins: []netip.Addr{netip.MustParseAddr("169.254.20.20"), netip.MustParseAddr("fd00::20:20")},
		})...))
	}
}

// TestGuard: the guard refers to no other object, and accepts no new connection of a pod.
func TestGuard(t *testing.T) {
	chains := append(Guard("flx-gw0"), HostGuard("flx-gw0")...)
	golden(t, "guard.txt", text(chains...))
	for _, c := range chains {
		if c.Hook == nil || len(c.References()) > 0 {
			t.Errorf("chain %s is no base chain or leads to another", c.Name)
		}
	}
}

func TestPolicyRules(t *testing.T) {
	p := &model.Policy{
		ID: np("base"),
		Ingress: []model.Rule{
			{Name: "ingress[0]", Action: model.Allow, Peers: []model.GroupID{"aone", "ntwo"}, Ports: []model.PortRange{{Protocol: model.TCP, First: 80, Last: 80}, {Protocol: model.UDP, First: 1000, Last: 2000}}},
			{Name: "ingress[1]", Action: model.Allow, Peers: []model.GroupID{"aone"}, NamedPorts: []model.GroupID{"phttp"}},
			{Name: "ingress[2]", Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.SCTP, Last: 65535}}, NamedPorts: []model.GroupID{"phttp"}},
			{Name: "ingress[3]", Action: model.Allow, AnyPeer: true, AnyPort: true},
			{Name: "ingress[4] matches nothing", Action: model.Allow},
		},
		Egress: []model.Rule{
			{Name: "egress[0]", Action: model.Allow, Peers: []model.GroupID{"aone"}, AnyPort: true},
			{Name: "egress[1]", Action: model.Deny, Peers: []model.GroupID{"ntwo"}, AnyPort: true},
			{Name: "egress[2]", Action: model.Pass, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.TCP, First: 443, Last: 443}}},
			{Name: "egress[3]", Action: model.Reject, Peers: []model.GroupID{"ntwo"}, AnyPort: true},
		},
	}
	r := NewRenderer("flx-gw0", 64)
	golden(t, "policy.txt", text(
		r.PolicyRules(p, model.Ingress, model.Families()), r.PolicyRules(p, model.Egress, model.Families()),
		r.PolicyRules(p, model.Ingress, []model.Family{model.IPv4})))
}

// TestRejected: under iptables, where the kernel rejects only in filter, the packet gets
// there by a mark, and nothing accepts it on the way.
func TestRejected(t *testing.T) {
	var b strings.Builder
	for _, length := range []int{NFTablesNameLength, IPTablesNameLength} {
		r := NewRenderer("flx-gw0", length)
		b.WriteString(text(append(r.Answers(), r.Rejected(model.Ingress, false), r.Rejected(model.Egress, true))...))
		for _, c := range r.Node().Static(&model.Node{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}) {
			if c.Name == ChainAllowed {
				b.WriteString(text(c))
			}
		}
	}
	b.WriteString(text(NewRenderer("flx-gw0", IPTablesNameLength).Node().Passed()))
	golden(t, "rejected.txt", b.String())
}

func TestAppliedChains(t *testing.T) {
	r := NewRenderer("flx-gw0", 64)
	admin := func(n string) model.PolicyID { return model.PolicyID{Tier: model.TierAdmin, Name: n} }
	baseline := model.PolicyID{Tier: model.TierBaseline, Name: "default"}
	cases := []model.Applied{
		{},
		{NetworkPolicies: []model.PolicyID{np("base")}},
		{NetworkPolicies: []model.PolicyID{np("base"), np("other"), np("third")}},
		{Admin: []model.PolicyID{admin("first"), admin("second")}, NetworkPolicies: []model.PolicyID{np("base")}, Baseline: []model.PolicyID{baseline}},
		{Admin: []model.PolicyID{admin("first")}, Baseline: []model.PolicyID{baseline}},
	}
	var b strings.Builder
	for _, a := range cases {
		for _, d := range model.Directions() {
			chain, verdict := r.Applied(d, a, always)
			b.WriteString("dispatch: " + verdict.String() + "\n")
			if chain.Name != "" {
				b.WriteString(text(chain))
			}
		}
	}
	chain, _ := r.Applied(model.Ingress, cases[1], func(model.PolicyID) bool { return false })
	b.WriteString("without rules:\n" + text(chain))
	for _, d := range model.Directions() {
		b.WriteString("where that leads, and while somebody follows it:\n" + text(Denied(d, false)) + text(Denied(d, true)))
	}
	golden(t, "applied.txt", b.String())
}

// An isolated direction must end in a drop for any policies, with and without reports,
// except for packets that egress policy has marked as allowed.
func TestIsolationEndsInDrop(t *testing.T) {
	r := NewRenderer("flx-gw0", IPTablesNameLength)
	for _, d := range model.Directions() {
		chain, _ := r.Applied(d, model.Applied{NetworkPolicies: []model.PolicyID{np("base")}}, always)
		var but []tables.Match
		if d == model.Egress {
			but = []tables.Match{notJudged()}
		}
		last := chain.Rules[len(chain.Rules)-1]
		if last.Action != Deny(d) || !slices.Equal(last.Matches, but) {
			t.Errorf("%s: chain ends in %q, want %s of all but %v", d, last, Deny(d), but)
		}
		for _, reported := range []bool{false, true} {
			chain := Denied(d, reported)
			last := chain.Rules[len(chain.Rules)-1]
			if last.Action != (tables.Drop{}) || len(last.Matches) != 0 || chain.Name != tables.Target(Deny(d)) {
				t.Errorf("%s: chain %s ends in %q, want an unconditional drop", d, chain.Name, last)
			}
		}
	}
}

func TestNamesAreBoundedAndDistinct(t *testing.T) {
	r := NewRenderer("flx-gw0", IPTablesNameLength)
	seen := map[string]string{}
	for _, n := range []string{ChainForward, ChainPrerouting, ChainEgress, ChainOutside, ChainToPods, ChainAllowedOut, ChainSources} {
		seen[n] = "a static chain"
	}
	for _, ns := range []string{"a", strings.Repeat("n", 63)} {
		for _, name := range []string{"b", strings.Repeat("p", 253), strings.Repeat("p", 252) + "q"} {
			for _, tier := range []model.Tier{model.TierAdmin, model.TierNetworkPolicy, model.TierBaseline} {
				for _, d := range model.Directions() {
					id := model.PolicyID{Tier: tier, Namespace: ns, Name: name}
					for _, n := range []string{r.PolicyChain(id, d), r.AppliedChain(d, model.Applied{NetworkPolicies: []model.PolicyID{id}})} {
						if len(n) > IPTablesNameLength {
							t.Errorf("name %q is longer than %d bytes", n, IPTablesNameLength)
						}
						if other, ok := seen[n]; ok {
							t.Errorf("%s and %s share the name %q", id, other, n)
						}
						seen[n] = id.String()
					}
				}
			}
		}
	}
}

// TestPassOfTheLastTier: behind a Pass of the baseline tier is the default, which
// allows: a baseline policy that comes next may not deny the packet.
func TestPassOfTheLastTier(t *testing.T) {
	for _, length := range []int{IPTablesNameLength, NFTablesNameLength} {
		r := NewRenderer("flx-gw0", length)
		for _, d := range model.Directions() {
			p := &model.Policy{ID: model.PolicyID{Tier: model.TierBaseline, Name: "p"}}
			rules := []model.Rule{{Name: "r", Action: model.Pass, AnyPeer: true, AnyPort: true}}
			p.Ingress, p.Egress = rules, rules
			chain := r.PolicyRules(p, d, model.Families())
			if len(chain.Rules) != 1 || chain.Rules[0].Action != r.allow(d) {
				t.Errorf("%s, names of %d: %s", d, length, text(chain))
			}
		}
	}
}
