package rules

import "github.com/felixlike/felixlike/tables"

// Guard renders the base chains that stand in for all others while a table is
// made from nothing: connections that were allowed go on, new ones have to wait.
// They refer to nothing, so that they are in force in about a millisecond,
// however much there is to load behind them.
func Guard(gateway string) []tables.Chain { return guard(gateway, allowedBefore()) }

// guard lets through what goesOn accepts.
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
	}
}
