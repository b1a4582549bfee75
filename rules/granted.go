package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Names of the sets of grants, the same for both families.
const (
	GrantsSet        = "grants"
	AnyPortGrantsSet = "grants-any-port"
)

// ListMap returns the name of the map from the addresses of pods to the numbers of their lists of policies.
func ListMap(d model.Direction, f model.Family) string {
	return "lists-" + directionLabel(d) + "-" + f.String()
}

// IdentityMap returns the name of the map from the addresses of peers to the identities of their groups of pods.
func IdentityMap(f model.Family) string { return "identities-" + f.String() }

// NetworkMap returns the name of the map from networks of peers to identities.
func NetworkMap(f model.Family) string { return "networks-" + f.String() }

// GrantedChain returns the name of the chain for pods whose list of policies is in grants.
func GrantedChain(d model.Direction) string {
	if d == model.Egress {
		return ChainGrantedOut
	}
	return ChainGrantedIn
}

// Granted renders the chain GrantedChain. It takes the place of the chains of lists and policies, with a fixed number of
// rules: one for each combination of a family, a kind of peer, and with or without a port.
func (r *Renderer) Granted(d model.Direction) tables.Chain {
	c := tables.Chain{Name: GrantedChain(d), Origin: tables.OfEveryPod{}}
	for _, f := range model.Families() {
		for _, peers := range []struct{ name, comment string }{
			{IdentityMap(f), "granted to pods"}, {NetworkMap(f), "granted to networks"}, {"", "granted to all"},
		} {
			match := tables.MatchGrant{Family: f, Pod: dispatchSide(d), Lists: ListMap(d, f), Peers: peers.name}
			match.Grants = GrantsSet
			c.Rules = append(c.Rules, tables.Rule{Matches: []tables.Match{match}, Action: r.allow(d), Comment: peers.comment + ", by port"})
			match.Grants, match.AnyPort = AnyPortGrantsSet, true
			c.Rules = append(c.Rules, tables.Rule{Matches: []tables.Match{match}, Action: r.allow(d), Comment: peers.comment})
		}
	}
	c.Rules = append(c.Rules, tables.Rule{Action: Deny(d), Comment: "isolated " + d.String()})
	return c
}
