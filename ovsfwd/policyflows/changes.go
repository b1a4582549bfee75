package policyflows

import "github.com/felixlike/felixlike/model"

// changes are the objects that Complete has to look at.
type changes struct {
	base    bool
	members map[memberClause]struct{}
	ports   map[portClause]struct{}
	// portSets are the layers whose sets of ports have other bits.
	portSets map[layer]struct{}
	pods     map[podClause]struct{}
	rules    map[RuleID]struct{}
	closing  map[string]struct{}
	rates    map[string]struct{}
	// networks are the groups of these to be filled, weights the policies to be
	// weighed.
	networks map[model.GroupID]struct{}
	weights  map[*policy]struct{}
}

func newChanges() changes {
	return changes{
		members: map[memberClause]struct{}{}, portSets: map[layer]struct{}{}, ports: map[portClause]struct{}{}, pods: map[podClause]struct{}{},
		rules: map[RuleID]struct{}{}, closing: map[string]struct{}{}, rates: map[string]struct{}{},
		networks: map[model.GroupID]struct{}{}, weights: map[*policy]struct{}{},
	}
}
