package policy

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// stagedStore has the staged policies that select local pods. It acquires their groups, as policyStore does for those that are enforced.
type stagedStore struct {
	byID      map[model.PolicyID]*policy
	groups    *groupStore
	endpoints *endpointStore
	// changed is set if one of the policies has changed since the last flush.
	changed bool
}

// set takes the state of a policy. No connection is judged by one that has a group with the identifier of another group.
func (x *stagedStore) set(p *policy) {
	var now *compile.Policy
	if p.applies() && p.compiled.Staged {
		if _, collides := x.groups.collision(p.compiled); !collides {
			now = p.compiled
		}
	}
	before := p.staged
	if now == before {
		return
	}
	if p.staged, x.changed = now, true; now != nil {
		for i := range now.Groups {
			x.groups.acquire(&now.Groups[i])
		}
		x.byID[p.id] = p
	} else {
		delete(x.byID, p.id)
	}
	if before != nil {
		for i := range before.Groups {
			x.groups.release(before.Groups[i].ID)
		}
	}
}

// flush returns all staged policies and their pods if one of them may have changed. It visits the pods that they select.
func (x *stagedStore) flush() []model.Update {
	changed := x.changed || len(x.byID) > 0 && x.endpoints.changed
	x.changed, x.endpoints.changed = false, false
	if !changed {
		return nil
	}
	var u model.StagedUpdate
	classes := map[*class]*applied{}
	endpoints := map[model.PodID]*model.Endpoint{}
	for _, id := range slices.SortedFunc(maps.Keys(x.byID), model.PolicyID.Compare) {
		p := x.byID[id]
		u.Policies = append(u.Policies, &p.staged.Model)
		for _, s := range p.targets {
			for c := range s.classes.All() {
				if classes[c] == nil {
					classes[c] = x.endpoints.list(c.targets(), func(p *policy) bool { return !p.compiled.Staged || p.staged != nil })
				}
				for _, pod := range c.pods[local] {
					x.endpoints.work.Visits++
					if pod.endpoint() {
						endpoints[pod.id] = classes[c].endpoint(pod.id)
					}
				}
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(endpoints), model.PodID.Compare) {
		u.Endpoints = append(u.Endpoints, endpoints[id])
	}
	return []model.Update{u}
}
