package iptables

import (
	"slices"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// TestRefusalHasOrigins: a refusal has the origins of its object and of the closed chains,
// also if an origin has changed alone.
func TestRefusalHasOrigins(t *testing.T) {
	table := newHost(t, NFT).open(t)
	loadExample(table)
	policy := tables.OfPolicy{ID: model.PolicyID{Namespace: "x", Name: "base"}, Direction: model.Ingress}
	list := tables.OfList{Identity: "ingress base"}
	for name, o := range map[string]tables.Origin{"pin-x/base-1": policy, "pods-in-x/base-1": list} {
		again := *table.chains[name].desired
		again.Origin = o
		table.UpdateChain(again)
	}
	group := tables.OfGroup{ID: "aweb"}
	table.QuarantineSets([]tables.Refusal{{Object: "set", Name: "aweb-4", Origin: group}})
	if got := apply(t, table).Refused; len(got) != 1 || got[0].Origin != group || !slices.Equal(got[0].ClosedOf, []tables.Origin{policy, list}) {
		t.Errorf("with a refused set: %+v", got)
	}
	table.QuarantineSets(nil)
	bad := *table.chains["pin-x/base-1"].desired
	bad.Rules = append(slices.Clone(bad.Rules), rule(tables.Accept{}, "", srcSet(model.IPv4, "missing-4")))
	table.UpdateChain(bad)
	if got := apply(t, table).Refused; len(got) != 1 || got[0].Origin != policy || !slices.Equal(got[0].ClosedOf, []tables.Origin{policy, list}) {
		t.Errorf("with a refused chain: %+v", got)
	}
}
