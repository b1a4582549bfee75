package tablestest

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// LoadAsking wants chains as policies have them: two policies, and chains that
// ask one or both of them, which packets from the sender of a Path come to by
// address. The rule is that of the policy "bad"; "good" lets UDP port 90 through.
// ClosedByBad are the chains to close if the rule is refused.
func LoadAsking(chains Chains, bad tables.Rule) {
	drop := Rule(tables.Drop{}, "isolated")
	ask := func(policy string, matches ...tables.Match) tables.Rule {
		return Rule(tables.Jump{Chain: policy}, policy, matches...)
	}
	to := func(address string, action tables.Action) tables.Rule {
		return Rule(action, "", tables.MatchPrefix{Side: tables.Destination, Prefix: netip.MustParsePrefix(address)})
	}
	notPassed := tables.MatchMark{Value: 0x10000000, Mask: 0x10000000, Negated: true}
	for name, rules := range map[string][]tables.Rule{
		"bad":         {bad},
		"good":        {Rule(tables.Accept{}, "", Protocol(model.UDP), Ports(90, 90))},
		"pods-bad":    {ask("bad"), drop},
		"pods-good":   {ask("good"), drop},
		"pods-both":   {ask("good"), ask("bad"), drop},
		"pods-turned": {ask("bad"), ask("good"), drop},
		"pods-admin":  {ask("good"), ask("bad", notPassed), drop},
		// It divides packets, and asks none.
		"to-pods": {to("10.2.0.8/29", tables.Jump{Chain: "tree"}), drop},
		"tree": {
			to("10.2.0.11/32", tables.Goto{Chain: "pods-bad"}),
			to("10.2.0.12/32", tables.Goto{Chain: "pods-good"}),
			to("10.2.0.13/32", tables.Jump{Chain: "pods-both"}),
			to("10.2.0.14/32", tables.Goto{Chain: "pods-turned"}),
			to("10.2.0.15/32", tables.Goto{Chain: "pods-admin"}),
		},
	} {
		chains.UpdateChain(tables.Chain{Name: name, Rules: rules})
	}
	chains.UpdateChain(tables.Chain{Name: "forward", Hook: &Forward, Rules: []tables.Rule{
		Rule(tables.Accept{}, "sentinel", Protocol(model.UDP), Ports(Sentinel, Sentinel)),
		Rule(tables.Goto{Chain: "to-pods"}, "", Interface(tables.Source, "r1", false), Interface(tables.Destination, "r1", true)),
	}})
}

// ClosedByBad are the chains that are closed while the policy "bad" of
// LoadAsking is refused.
func ClosedByBad() []string {
	return []string{"bad", "pods-admin", "pods-bad", "pods-both", "pods-turned"}
}

// AskingPackets are packets through the rules of LoadAsking, if "bad" lets UDP port
// 80 through, or is closed.
func AskingPackets(closed bool) []PacketCase {
	cases := []PacketCase{
		{model.UDP, "10.1.0.5", "10.2.0.11", 80, !closed},
		{model.UDP, "10.1.0.5", "10.2.0.11", 90, false},
		{model.UDP, "10.1.0.5", "10.2.0.12", 80, false},
		{model.UDP, "10.1.0.5", "10.2.0.12", 90, true},
		{model.UDP, "10.1.0.5", "10.2.0.9", 90, false},
	}
	for _, both := range []string{"10.2.0.13", "10.2.0.14", "10.2.0.15"} {
		for port, want := range map[uint16]bool{80: !closed, 81: false, 90: !closed} {
			cases = append(cases, PacketCase{model.UDP, "10.1.0.5", both, port, want})
		}
	}
	return cases
}
