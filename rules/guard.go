package rules

import "github.com/felixlike/felixlike/tables"

// Guard renders the base chains that replace all others while a table is built from
// nothing: allowed connections go on, new ones have to wait. These chains refer to no
// other object, so they are in force in about a millisecond at any size of the table.
func Guard(gateway string) []tables.Chain { return guard(gateway, allowedBefore()) }

// guard passes only the packets that the rules goesOn accept.
func guard(gateway string, goesOn []tables.Rule) []tables.Chain {
	closed := func(s tables.Side, comment string) tables.Rule {
		return tables.Rule{
			Matches: []tables.Match{tables.MatchInterface{Side: s, Name: gateway}},
			Action:  tables.Drop{}, Comment: comment,
		}
	}
	before := prerouting()
	before.Name = ChainGuardPrerouting
	return []tables.Chain{
		{
			Name: ChainGuardForward,
			Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: priorityForward},
			Rules: append(goesOn,
				closed(tables.Source, "policy is being loaded: from a pod or the tunnel"),
				closed(tables.Destination, "policy is being loaded: to a pod or the tunnel"),
			),
		},
		before,
		guardInput(NodeChains{gateway: gatewayPort{name: gateway}}),
	}
}

// guardInput keeps packets of pods from their own node.
func guardInput(n NodeChains) tables.Chain {
	return tables.Chain{
		Name: ChainGuardInput,
		Hook: inputHook(),
		Rules: append(unjudgedInput(n), tables.Rule{
			Matches: []tables.Match{n.gateway.in()}, Action: tables.Drop{}, Comment: "policy is being loaded: from a pod to this node",
		}),
	}
}

// GuardOf renders Guard for the nodes of a renderer. In the mode networkPolicyOnly, the table of PodSources replaces the chains for
// forwarded packets.
func GuardOf(r *Renderer) []tables.Chain {
	if r.node.gateway.policyOnly {
		return []tables.Chain{guardInput(r.node)}
	}
	return Guard(r.node.gateway.name)
}
