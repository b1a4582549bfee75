package compile

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// AntreaObjects returns the tier or the group of that name, or nil.
type AntreaObjects func(antrea.ID) antrea.Object

// AntreaNamespace is a namespace for which a policy is compiled. The zero value stands for all
// namespaces.
type AntreaNamespace struct {
	Name   string
	Labels *label.Set
}

// antreaCompiler compiles one policy of Antrea's API.
type antreaCompiler struct {
	tieredCompiler
	id      antrea.ID
	spec    *antrea.PolicySpec
	objects AntreaObjects
	within  AntreaNamespace
	// uses are the tiers and groups that were looked up, whether they exist or not.
	uses smallmap.Set[antrea.ID]
	// before has the pods of groups.
	before AntreaGroupPods
	// deep are the groups that were found below the children of one.
	deep map[antrea.ID]bool
	// toNodes reports that every entry of appliedTo selects nodes.
	toNodes bool
	// preDNAT reports that the policy is judged before DNAT, selectsNone that an annotation keeps it from selecting nodes.
	preDNAT, selectsNone bool
	// matchesSelf is AntreaMatchesSelf.
	matchesSelf bool
}

// AntreaGroupPods has the pods that the group of an appliedTo selected when it could be understood. A caller keeps it from one version of the objects
// to the next.
type AntreaGroupPods map[antrea.ID][]Selection

// AntreaSpec returns the content of a policy, or nil for objects of other kinds.
func AntreaSpec(object antrea.Object) *antrea.PolicySpec {
	switch o := object.(type) {
	case *antrea.ClusterNetworkPolicy:
		return &o.Spec
	case *antrea.NetworkPolicy:
		return &o.Spec
	}
	return nil
}

// AntreaMatchesSelf reports whether the peers of a rule depend on the subject's own namespace: on its name or its labels. Such
// a policy is compiled once for each namespace.
func AntreaMatchesSelf(object antrea.Object) bool {
	if object.ID().Kind != antrea.KindClusterNetworkPolicy {
		return false
	}
	self := func(p antrea.Peer) bool {
		return p.Namespaces != nil && (p.Namespaces.Match == antrea.MatchSelf || len(p.Namespaces.SameLabels) > 0)
	}
	spec := AntreaSpec(object)
	return slices.ContainsFunc(slices.Concat(spec.Ingress, spec.Egress), func(r antrea.Rule) bool {
		return slices.ContainsFunc(slices.Concat(r.From, r.To), self)
	})
}

// AntreaPolicy compiles a policy of Antrea's API. Rules with one target are one policy of the model;
// if there are several targets, each run of rules with the same one is a part. It reports each
// part that is not valid, and fails closed, as ClusterNetworkPolicy does. uses are the tiers and
// groups on which the result depends. It reads and updates before, which may be nil.
func AntreaPolicy(object antrea.Object, objects AntreaObjects, before AntreaGroupPods, within AntreaNamespace, ids GroupIDs) (policies []*Policy, problems []model.Problem, uses []antrea.ID) {
	id := object.ID()
	c := antreaCompiler{
		tieredCompiler: tieredCompiler{compiler: compiler{ids: ids, namespace: id.Namespace, whole: true, Report: Report{Object: id.Ref()}}, allow: "Allow"},
		id:             id, spec: AntreaSpec(object), objects: objects, within: within,
		before: before, deep: map[antrea.ID]bool{}, matchesSelf: AntreaMatchesSelf(object),
	}
	c.findTargets()
	c.nodeAnnotations(object.GetAnnotations())
	staged := c.staged(object.GetAnnotations())
	tier, precedence := c.place()
	parts := c.direction(model.Ingress, c.spec.Ingress)
	if !c.preDNAT {
		parts = append(parts, c.direction(model.Egress, c.spec.Egress)...)
	}
	parts = c.bounded(parts)
	if len(parts) > 1 && !slices.ContainsFunc(parts, func(p antreaPart) bool { return p.target.key != parts[0].target.key }) {
		whole := antreaPart{target: parts[0].target}
		for _, p := range parts {
			whole.ingress, whole.egress = append(whole.ingress, p.ingress...), append(whole.egress, p.egress...)
		}
		parts = []antreaPart{whole}
	}
	for i, p := range parts {
		out := &Policy{Targets: p.target.selections, Nodes: p.target.nodes, Staged: staged, Ingress: len(p.ingress) > 0, Egress: len(p.egress) > 0}
		out.Model = model.Policy{ID: c.policyID(tier), Precedence: precedence, PreDNAT: c.preDNAT, Ingress: p.ingress, Egress: p.egress}
		if len(parts) > 1 {
			out.Model.ID.Part = uint16(i + 1)
		}
		c.closeCollided(&out.Model)
		out.Groups = c.used(&out.Model)
		if len(out.Targets)+len(out.Nodes) > 0 {
			policies = append(policies, out)
		}
	}
	for id := range c.uses.All() {
		uses = append(uses, id)
	}
	return policies, c.Problems, uses
}

func (c *antreaCompiler) policyID(tier model.Tier) model.PolicyID {
	id := model.PolicyID{Tier: tier, API: model.Antrea, Namespace: c.id.Namespace, Name: c.id.Name, Within: c.within.Name}
	if c.id.Kind == antrea.KindClusterNetworkPolicy {
		id.API = model.AntreaCluster
	}
	return id
}
