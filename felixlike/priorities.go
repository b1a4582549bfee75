package felixlike

import (
	"fmt"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// priorityProblems returns a problem for each ClusterNetworkPolicy that shares tier and
// priority with another one, if both apply to a pod of this node in one direction. The API
// leaves their order open. The problem names the policy that is asked later.
func (c *cluster) priorityProblems() []model.Problem {
	if len(c.objects.clusterPolicies) < 2 {
		return nil
	}
	type pair struct{ first, second model.PolicyID }
	seen := map[pair]bool{}
	// Pods with equal labels share their lists of policies.
	type list struct {
		first *model.PolicyID
		size  int
	}
	passed := map[list]bool{}
	var found []model.Problem
	for _, e := range c.tracker.endpoints {
		for _, direction := range model.Directions() {
			applied := e.Applied(direction)
			for _, tier := range [][]model.PolicyID{applied.Admin, applied.Baseline} {
				if len(tier) < 2 || passed[list{&tier[0], len(tier)}] {
					continue
				}
				passed[list{&tier[0], len(tier)}] = true
				for i := 1; i < len(tier); i++ {
					p := pair{tier[i-1], tier[i]}
					if p.first.API != model.Kubernetes || p.second.API != model.Kubernetes {
						continue // a policy of Antrea's API has its priority within its tier
					}
					first, second := c.objects.clusterPolicies[p.first.Name], c.objects.clusterPolicies[p.second.Name]
					if seen[p] || first == nil || second == nil || compile.PriorityOf(first.Spec.Priority) != compile.PriorityOf(second.Spec.Priority) {
						continue
					}
					seen[p] = true
					found = append(found, equalPriority(first, second, c.policies[ref("ClusterNetworkPolicy", "", second.Name)]))
				}
			}
		}
	}
	return found
}

// equalPriority returns the problem of the second policy, which is asked later.
func equalPriority(first, second *v1alpha2.ClusterNetworkPolicy, source string) model.Problem {
	return model.Problem{
		Source: source, Object: ref("ClusterNetworkPolicy", "", second.Name), Field: "spec.priority",
		Reason: fmt.Sprintf("%d is also the priority of %s in tier %s, and pods are subjects of both: %s is asked first, by its name",
			compile.PriorityOf(second.Spec.Priority), first.Name, second.Spec.Tier, first.Name),
	}
}
