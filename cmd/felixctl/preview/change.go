package preview

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// Change is policies to be created or replaced, and policies to be deleted.
type Change struct {
	Set        []*networkingv1.NetworkPolicy
	SetCluster []*v1alpha2.ClusterNetworkPolicy
	// SetAntrea are policies, tiers and groups of Antrea's API.
	SetAntrea []antrea.Object
	// Delete are policies of all kinds.
	Delete []model.ObjectRef
	// Services are those whose addresses policies before DNAT may close. nil stands for unknown ones. They do not change.
	Services []control.Service
}

// Empty reports whether there is nothing to change.
func (c Change) Empty() bool {
	return len(c.Set)+len(c.SetCluster)+len(c.SetAntrea)+len(c.Delete) == 0
}

// Kinds of a PolicyChange.
const (
	Created = "created"
	Changed = "changed"
	Deleted = "deleted"
	Same    = "unchanged"
)

// PolicyChange is the change of one policy.
type PolicyChange struct {
	Policy string `json:"policy"`
	// Kind is NetworkPolicy, ClusterNetworkPolicy, or a kind of Antrea's API with its group.
	Kind string `json:"kind"`
	// Tier is that of a policy of another kind than NetworkPolicy.
	Tier string `json:"tier,omitempty"`
	// What is Created, Changed, Deleted or Same.
	What string `json:"what"`
	// Pods are those that it selects, or selected.
	Pods []string `json:"pods"`
	// Nodes are those to which it applies, or applied, themselves.
	Nodes []string `json:"nodes,omitempty"`
	// Ingress and Egress report the policy's directions.
	Ingress bool `json:"ingress"`
	Egress  bool `json:"egress"`
	// Problems name the parts that cannot be put into effect, and effects that people may not
	// expect.
	Problems []string `json:"problems,omitempty"`

	before, after anyPolicy
}

// apply returns the policies after the change, and the change of each object. It fails
// for a missing policy to delete, and for an object that is named twice.
func (c Change) apply(o control.Objects) ([]anyPolicy, []PolicyChange, error) {
	refersTo, of := referenced(o.Antrea), c.projects(o.Antrea)
	for _, object := range c.SetAntrea {
		if !isAntreaPolicy(object) {
			refersTo.Put(object)
		}
	}
	after, known := map[model.ObjectRef]anyPolicy{}, map[model.ObjectRef]anyPolicy{}
	for _, p := range policiesOf(o) {
		known[p.name()] = p
		if p.antrea != nil {
			p = antreaPolicy(p.antrea, refersTo, of)
		}
		after[p.name()] = p
	}
	for _, object := range referenced(o.Antrea).All() {
		known[object.ID().Ref()] = anyPolicy{antrea: object, refersTo: refersTo}
	}
	touched := map[model.ObjectRef]*PolicyChange{}
	var errs []error
	touch := func(name model.ObjectRef) *PolicyChange {
		if touched[name] != nil {
			errs = append(errs, fmt.Errorf("%s: named twice", name))
		}
		touched[name] = &PolicyChange{Policy: name.String(), Kind: name.Kind, before: known[name]}
		return touched[name]
	}
	for _, name := range c.Delete {
		if touch(name).before.none() {
			errs = append(errs, fmt.Errorf("%s: does not exist, so it cannot be deleted", name))
		}
		touched[name].What = Deleted
		delete(after, name)
	}
	set := policiesOf(control.Objects{Policies: c.Set, ClusterPolicies: c.SetCluster})
	for _, object := range c.SetAntrea {
		set = append(set, antreaPolicy(object, refersTo, of))
	}
	for _, p := range set {
		t := touch(p.name())
		t.after = p
		if p.isPolicy() {
			after[p.name()] = p
		}
		switch {
		case t.before.none():
			t.What = Created
		case t.before.equal(p):
			t.What = Same
		default:
			t.What = Changed
		}
	}
	var changes []PolicyChange
	for _, name := range slices.SortedFunc(maps.Keys(touched), model.ObjectRef.Compare) {
		changes = append(changes, *touched[name])
	}
	return slices.SortedFunc(maps.Values(after), comparePolicies), changes, errors.Join(errs...)
}

// projects returns the projects after the change.
func (c Change) projects(o antrea.Objects) *projects {
	after := antrea.Objects{
		NetNamespaces:  slices.DeleteFunc(slices.Clone(o.NetNamespaces), func(n *antrea.NetNamespace) bool { return slices.Contains(c.Delete, n.ID().Ref()) }),
		EgressPolicies: slices.DeleteFunc(slices.Clone(o.EgressPolicies), func(p *antrea.EgressNetworkPolicy) bool { return slices.Contains(c.Delete, p.ID().Ref()) }),
	}
	for _, object := range c.SetAntrea {
		after.Put(object)
	}
	return projectsOf(after)
}

// isPolicy reports that the change is of a policy, not of a tier or a group.
func (c *PolicyChange) isPolicy() bool {
	return (c.after.none() || c.after.isPolicy()) && (c.before.none() || c.before.isPolicy())
}

// describe fills in a policy's pods and directions, and its problems.
func (c *PolicyChange) describe(o control.Objects, e *policy.Engine) {
	p := c.after
	if p.none() {
		p = c.before
	}
	c.Ingress, c.Egress = p.about(model.Ingress), p.about(model.Egress)
	c.Tier = p.tier()
	namespaces := map[string]*corev1.Namespace{}
	for _, n := range o.Namespaces {
		namespaces[n.Name] = n
	}
	for _, pod := range o.Pods {
		n := namespaces[pod.Namespace]
		if selectable(pod) && (c.before.selects(pod, n) || c.after.selects(pod, n)) {
			c.Pods = append(c.Pods, podName(pod))
		}
	}
	for _, n := range o.Nodes {
		if c.before.selectsNode(n) || c.after.selectsNode(n) {
			c.Nodes = append(c.Nodes, n.Name)
		}
	}
	if c.after.none() {
		return
	}
	for _, problem := range p.set(e) {
		text := problem.Reason
		if problem.Field != "" {
			text = problem.Field + ": " + text
		}
		c.Problems = append(c.Problems, text)
	}
	switch {
	case len(c.Pods)+len(c.Nodes) > 0 || !p.isPolicy():
	case p.forNodes():
		c.Problems = append(c.Problems, "it selects no existing node")
	default:
		c.Problems = append(c.Problems, "it selects no existing pod")
	}
	if p.network == nil {
		return
	}
	for _, id := range e.HostNetworkTargets(true)[model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: p.network.Namespace, Name: p.network.Name}] {
		c.Problems = append(c.Problems, fmt.Sprintf("it selects %s, which is in its host's network, so that no policy applies to it", id))
	}
	if namespaces[p.network.Namespace] == nil {
		c.Problems = append(c.Problems, fmt.Sprintf("there is no namespace %q", p.network.Namespace))
	}
}
