package cluster

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// Kinds of problems, which are the reasons of Events.
const (
	NotUnderstood  = "NotUnderstood"
	Quarantined    = "Quarantined"
	hostNetwork    = "HostNetworkPodSelected"
	unresolvedPort = "NamedPortUnresolved"
	equalPriority  = "EqualPriority"
)

// Problems returns the problems of objects of which the datastore and the policy engine tell at once.
func (c *Cluster) Problems() []model.Problem { return c.problems.all() }

// Conflicts returns the problems that objects have with others, with their files. Of the hostNetwork pods that a policy selects, it names all or the first.
func (c *Cluster) Conflicts(allHostPods bool) (all []datastore.Notice) {
	add := func(kind string, known datastore.Known, problems []model.Problem) {
		for _, p := range problems {
			if p.Source == "" {
				p.Source = c.Source(p.Object)
			}
			all = append(all, datastore.Notice{Problem: p, Kind: kind, Known: known})
		}
	}
	// Each node keeps its own claims, so not all nodes see the same conflicts.
	add(NotUnderstood, datastore.KnownToSome, nodeProblems(c))
	add(NotUnderstood, datastore.KnownToAll, c.engine.AntreaProblems())
	add(Quarantined, datastore.KnownToSome, c.engine.Collisions())
	add(hostNetwork, datastore.KnownToAll, hostNetworkProblems(c, allHostPods))
	add(unresolvedPort, datastore.KnownToSome, portProblems(c))
	add(equalPriority, datastore.KnownToSome, priorityProblems(c))
	add(equalPriority, datastore.KnownToAll, tierProblems(c))
	return all
}

// nodeProblems returns what nodes claim and do not own, with their files.
func nodeProblems(c *Cluster) []model.Problem {
	all := slices.Clone(c.engine.NodeProblems())
	for i := range all {
		all[i].Source = c.nodeSources[all[i].Object.Name]
	}
	return all
}

// Source returns the file of an object, or "".
func (c *Cluster) Source(of model.ObjectRef) string {
	source, _ := c.sourceOf(of)
	return source
}

// sourceOf returns the file of a policy or another object of Antrea's API, and whether the datastore has the object.
func (c *Cluster) sourceOf(of model.ObjectRef) (source string, known bool) {
	if source, known = c.policies[of]; !known {
		source, known = c.antreaSources[of]
	}
	return source, known
}

// OwnNodeProblems reports a missing object of this node, with the effect.
func (c *Cluster) OwnNodeProblems() []model.Problem {
	reason := ""
	switch {
	case c.nodeLost:
		reason = "this node is not in the datastore any more: its last known object stays in force"
	case c.sourceSynced && c.model.Nodes[c.cfg.Node] == nil:
		reason = "this node is not in the datastore: nothing is programmed until it is"
	default:
		return nil
	}
	return []model.Problem{{Object: model.NodeRef(c.cfg.Node), Reason: reason}}
}

// hostNetworkProblems reports the policies that select hostNetwork pods, with all such pods or the first. No policy applies
// to these pods, and users often expect one to.
func hostNetworkProblems(c *Cluster, all bool) []model.Problem {
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
func portProblems(c *Cluster) []model.Problem {
	var found []model.Problem
	for object, ports := range c.engine.UnresolvedPorts() {
		source, known := c.sourceOf(object)
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
