package grants

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// DefaultBound bounds the grants of a node. The agent needs some 200 bytes for each, and the kernel 100.
const DefaultBound = 250_000

// Overflow is the error of Grants with too many grants.
type Overflow struct {
	Bound int
	// Direction and Policies are the list with the most grants; Grants is their number.
	Direction model.Direction
	Policies  []model.PolicyID
	Grants    int
}

func (o *Overflow) Error() string {
	others := ""
	if n := len(o.Policies) - 1; n > 0 {
		others = fmt.Sprintf(" and %d other policies", n)
	}
	return fmt.Sprintf("more than %d grants; %d of them for the %s of pods with %s%s", o.Bound, o.Grants, o.Direction, o.Policies[0], others)
}

// recount counts the grants anew: a full ledger has counted no more, so it has grants of lists that have left it since.
func (g *Grants) recount() {
	g.ledger.forget()
	for _, l := range g.lists {
		if !l.mapped {
			continue
		}
		for id := range l.applied.All() {
			for _, r := range g.sides[rules.PolicySide{ID: id, Direction: l.direction}].rules {
				g.ledger.countAll(use{l, r})
			}
		}
	}
}

// overflow describes the grants, if there are too many.
func (g *Grants) overflow() *Overflow {
	if !g.ledger.full() {
		return nil
	}
	if g.recount(); !g.ledger.full() {
		return nil
	}
	of := map[uint32]int{}
	for grant := range g.ledger.counts {
		of[grant.List]++
	}
	var mapped []*list
	for _, l := range g.lists {
		if l.mapped {
			mapped = append(mapped, l)
		}
	}
	most := slices.MinFunc(mapped, func(a, b *list) int {
		return cmp.Or(of[uint32(b.number)]-of[uint32(a.number)], cmp.Compare(a.key, b.key))
	})
	return &Overflow{Bound: g.ledger.limit, Direction: most.direction, Policies: most.applied.NetworkPolicies, Grants: of[uint32(most.number)]}
}
