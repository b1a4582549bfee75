package tablestest

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Hooks of base chains that every driver has.
var (
	Prerouting  = tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: -300}
	Forward     = tables.Hook{Type: tables.HookFilter, Point: tables.HookForward}
	Allowed     = tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: -150}
	Postrouting = tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting, Priority: 100}
)

// Rule returns a rule.
func Rule(a tables.Action, comment string, matches ...tables.Match) tables.Rule {
	return tables.Rule{Matches: matches, Action: a, Comment: comment}
}

// SourceSet matches the source address against a set.
func SourceSet(f model.Family, name string) tables.MatchSet {
	return tables.MatchSet{Family: f, Side: tables.Source, Set: name}
}

// Protocol matches a protocol.
func Protocol(p model.Protocol) tables.MatchProtocol { return tables.MatchProtocol{Protocol: p} }

// Ports matches destination ports.
func Ports(first, last uint16) tables.MatchDestinationPorts {
	return tables.MatchDestinationPorts{First: first, Last: last}
}

// Prefix matches an address against a prefix.
func Prefix(side tables.Side, p string, negated bool) tables.MatchPrefix {
	return tables.MatchPrefix{Side: side, Prefix: netip.MustParsePrefix(p), Negated: negated}
}

// Interface matches the name of an interface.
func Interface(side tables.Side, name string, negated bool) tables.MatchInterface {
	return tables.MatchInterface{Side: side, Name: name, Negated: negated}
}
