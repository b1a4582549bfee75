package driver

import (
	"fmt"
	"slices"

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

// moduleProblems returns the problems that modules have with users' objects, with their files.
func (c *cluster) moduleProblems() []model.Problem {
	all := c.modules.objectProblems()
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

// hostNetworkProblems reports the policies that select hostNetwork pods. No policy applies
// to these pods, and users often expect one to.
func (c *cluster) hostNetworkProblems() []model.Problem {
	var found []model.Problem
	for r, source := range c.policies {
		for _, pod := range c.engine.HostNetworkTargets(r.Namespace, r.Name) {
			found = append(found, model.Problem{
				Source: source, Object: r, Field: "spec.podSelector",
				Reason: "matches pod " + pod.String() + ", which is on the host's network: no policy applies to it",
			})
		}
	}
	return found
}

// portProblems reports the named ports of policies that no pod declares.
func (c *cluster) portProblems() []model.Problem {
	const matchNothing = "they match nothing by it, also if they deny"
	var found []model.Problem
	report := func(r model.ObjectRef, source string, ports []string, effect string) {
		for _, port := range ports {
			found = append(found, model.Problem{
				Source: source, Object: r, Field: "spec",
				Reason: "no pod that the rules with the named port " + port + " are about declares it: " + effect,
			})
		}
	}
	for r, source := range c.policies {
		if r.Kind == "ClusterNetworkPolicy" {
			report(r, source, c.engine.UnresolvedPorts().OfCluster(r.Name), matchNothing)
		} else {
			report(r, source, c.engine.UnresolvedPorts().OfNetwork(r.Namespace, r.Name), "they allow nothing to it")
		}
	}
	for id := range c.objects.antrea {
		report(id.Ref(), c.antreaSources[id.Ref()], c.engine.UnresolvedPorts().OfAntrea(id), matchNothing)
	}
	return found
}

// peerProblems reports the peer nodes that no tunnel can reach.
func (c *cluster) peerProblems() []model.Problem {
	var found []model.Problem
	self := c.model.Nodes[c.node]
	if c.policyOnly || self == nil {
		return nil
	}
	for name, n := range c.model.Nodes {
		if name == c.node || self.OuterOf(n).IsValid() {
			continue
		}
		reason := "no InternalIP, which the tunnel needs: its pods cannot be reached"
		if its := n.Outer(); its.IsValid() {
			reason = fmt.Sprintf("there is no tunnel to %s, which is of another family than this node's end: its pods cannot be reached. The end of a node is its IPv4 InternalIP, or the IPv6 one if it has no other", its)
		}
		found = append(found, model.Problem{Object: model.NodeRef(name), Field: "status.addresses", Reason: reason})
	}
	return found
}
