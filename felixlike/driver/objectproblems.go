package driver

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// antreaProblems returns the engine's problems of the objects of Antrea's API, with their files.
func (c *cluster) antreaProblems() []model.Problem {
	all := c.engine.AntreaProblems()
	for i := range all {
		all[i].Source = c.antreaSources[all[i].Object]
	}
	return all
}

// nodeProblems returns what nodes claim and do not own, with their files.
func (c *cluster) nodeProblems() []model.Problem {
	all := slices.Clone(c.engine.NodeProblems())
	for i := range all {
		all[i].Source = c.nodeSources[all[i].Object.Name]
	}
	return all
}

// ownNodeProblems reports a missing object of this node, with the effect.
func (c *cluster) ownNodeProblems() []model.Problem {
	reason := ""
	switch {
	case c.nodeLost:
		reason = "this node is not in the datastore any more: its last known object stays in force"
	case c.sourceSynced && c.model.Nodes[c.node] == nil:
		reason = "this node is not in the datastore: nothing is programmed until it is"
	default:
		return nil
	}
	return []model.Problem{{Object: model.NodeRef(c.node), Reason: reason}}
}

// hostNetworkProblems reports the policies that select hostNetwork pods, with all such pods or the first. No policy applies
// to these pods, and users often expect one to.
func (c *cluster) hostNetworkProblems(all bool) []model.Problem {
	var found []model.Problem
	for id, pods := range c.engine.HostNetworkTargets(all) {
		object := id.Object()
		source, known := c.policies[object]
		if !known {
			continue // deleted, and not yet in the engine
		}
		for _, pod := range pods {
			found = append(found, model.Problem{
				Source: source, Object: object, Field: "spec.podSelector",
				Reason: "matches pod " + pod.String() + ", which is on the host's network: no policy applies to it",
			})
		}
	}
	return found
}

// portProblems reports the named ports of policies that no pod declares.
func (c *cluster) portProblems() []model.Problem {
	var found []model.Problem
	for object, ports := range c.engine.UnresolvedPorts() {
		source, known := c.policies[object]
		if !known {
			source, known = c.antreaSources[object]
		}
		if !known {
			continue // deleted, and not yet in the engine
		}
		effect := "they match nothing by it, also if they deny"
		if object.Kind == "NetworkPolicy" {
			effect = "they allow nothing to it"
		}
		for _, port := range ports {
			found = append(found, model.Problem{
				Source: source, Object: object, Field: "spec",
				Reason: "no pod that the rules with the named port " + port + " are about declares it: " + effect,
			})
		}
	}
	return found
}

// moduleProblems returns the problems that modules have with users' objects, with their files.
func (c *cluster) moduleProblems() []datastore.Notice {
	all := c.modules.objectProblems()
	for i := range all {
		if source, known := c.antreaSources[all[i].Object]; known {
			all[i].Source = source
		}
	}
	return all
}
