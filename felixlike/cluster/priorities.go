package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// priorityProblems returns a problem for each policy of an ordered tier that shares its place with
// another one, if both apply to a pod of this node in one direction. The APIs leave their order open.
// The problem names the policy that is evaluated later. There is one for each such policy: hundreds with one
// priority would have thousands of pairs.
func priorityProblems(c *Cluster) []model.Problem {
	type pair struct{ first, second model.ObjectRef }
	seen := map[pair]bool{}
	// Pods with equal labels share their lists of policies.
	type list struct {
		first *model.PolicyID
		size  int
	}
	passed := map[list]bool{}
	var found []model.Problem
	for _, e := range c.model.Endpoints {
		for _, direction := range model.Directions() {
			applied := e.Applied(direction)
			for _, tier := range [][]model.PolicyID{applied.Admin, applied.Baseline} {
				if len(tier) < 2 || passed[list{&tier[0], len(tier)}] {
					continue
				}
				passed[list{&tier[0], len(tier)}] = true
				for i := 1; i < len(tier); i++ {
					first, second := c.model.Policies[tier[i-1]], c.model.Policies[tier[i]]
					if first == nil || second == nil || first.Precedence != second.Precedence {
						continue
					}
					p := pair{first.ID.Object(), second.ID.Object()}
					if p.first == p.second || seen[p] {
						continue // parts of one object keep the order of its rules
					}
					seen[p] = true
					found = append(found, problemOfSecond(first, second, c.Source(second.ID.Object())))
				}
			}
		}
	}
	return firstOfEach(found)
}

// problemOfSecond returns the problem of the second policy, which is evaluated later.
func problemOfSecond(first, second *model.Policy, source string) model.Problem {
	object := second.ID.Object()
	return model.Problem{
		Source: source, Object: object, Field: "spec.priority",
		Reason: fmt.Sprintf("%v is also the priority of %s in the same tier, and both apply to a pod of this node: the order of kinds and names decides, so %s is evaluated first",
			second.Precedence.Priority, first.ID.Object(), first.ID.Object()),
	}
}

// tierProblems returns a problem for each Tier of Antrea's API that has the priority of a default
// tier, or of a Tier with a lesser name.
func tierProblems(c *Cluster) []model.Problem {
	first := map[int32]string{}
	for _, name := range compile.AntreaTiers() {
		priority, _ := compile.AntreaTier(name)
		first[int32(priority)] = name
	}
	var found []model.Problem
	for _, id := range slices.SortedFunc(maps.Keys(c.objects.tiers), antrea.ID.Compare) {
		t := c.objects.tiers[id]
		if len(compile.AntreaTierProblems(t)) > 0 {
			continue
		}
		name, taken := first[t.Spec.Priority]
		switch {
		case !taken:
			first[t.Spec.Priority] = t.Name
		case !strings.EqualFold(name, t.Name):
			found = append(found, model.Problem{
				Source: c.antreaSources[id.Ref()], Object: id.Ref(), Field: "spec.priority",
				Reason: fmt.Sprintf("%d is also the priority of tier %s: the policies of both are evaluated as those of one tier, by their own priority", t.Spec.Priority, name),
			})
		}
	}
	return found
}
