package managers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/tables"
)

// ObjectList is the Refusal.Object for a list of policies that apply to pods together.
const ObjectList = "list of policies"

// Refusals returns the policies and lists of policies without a chain because another
// object has its name. Closed has their pods, as for policyflows.Object: their packets
// are denied instead.
func (m *EndpointManager) Refusals() []tables.Refusal {
	var all []tables.Refusal
	for side, owner := range m.applied.renderer.Policies().AllRefused() {
		all = append(all, tables.Refusal{
			Object: policyflows.Object, Name: side.ID.String(), Rule: side.Direction.String(), Attempts: 1,
			Reason: sharesName(m.applied.renderer.PolicyChain(side.ID, side.Direction), owner.ID.String()),
			Origin: tables.OfPolicy{ID: side.ID, Direction: side.Direction},
		}.ClosingPods(m.holders(m.applied.users[side.ID], side.Direction)))
	}
	for key, owner := range m.applied.claims.AllRefused() {
		refused := m.applied.byKey[key]
		all = append(all, tables.Refusal{
			Object: ObjectList, Name: listText(refused.applied), Rule: refused.direction.String(), Attempts: 1,
			Reason: sharesName(refused.name, listText(m.applied.byKey[owner].applied)),
			Origin: tables.OfList{Identity: key},
		}.ClosingPods(m.holders(map[string]bool{key: true}, refused.direction)))
	}
	return all
}

func sharesName(chain, owner string) string {
	return fmt.Sprintf("its chain would be %s, which is that of %s: give one of the policies another name", chain, owner)
}

func listText(a model.Applied) string {
	var names []string
	for id := range a.All() {
		names = append(names, id.String())
	}
	return strings.Join(names, ", ")
}

// holders returns the pods that hold one of the chains, in the direction.
func (m *EndpointManager) holders(keys map[string]bool, d model.Direction) []model.PodID {
	var pods []model.PodID
	for id, h := range m.held {
		key := h.ingress.key
		if d == model.Egress {
			key = h.egress.key
		}
		if keys[key] {
			pods = append(pods, id)
		}
	}
	slices.SortFunc(pods, model.PodID.Compare)
	return pods
}
