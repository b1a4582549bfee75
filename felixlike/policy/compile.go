package policy

import (
	"iter"
	"slices"
	"strconv"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// compiled is a policy as the engine uses it: whom it is for, in which directions it
// applies, and its rules with the definitions of the groups they refer to. A
// NetworkPolicy isolates in the directions in which it applies.
type compiled struct {
	policy          model.Policy
	target          selectionSpec
	ingress, egress bool
	// groups are distinct, and sorted by identifier.
	groups []groupSpec
}

// selectors yields where the policy keeps its selectors.
func (c *compiled) selectors() iter.Seq[**label.Selector] {
	return func(yield func(**label.Selector) bool) {
		all := []**label.Selector{&c.target.namespaces, &c.target.pods}
		for i := range c.groups {
			g := &c.groups[i]
			all = append(all, &g.from.namespaces, &g.from.pods, &g.nodes)
		}
		for _, s := range all {
			if *s != nil && !yield(s) {
				return
			}
		}
	}
}

// compiler compiles one policy. It is a pure function of the object.
type compiler struct {
	report
	ids       groupIDs
	namespace string
	// target is the peer selection of the policy's own pods in the cluster.
	target selectionSpec
	// defined are the groups of all rules.
	defined smallmap.Map[model.GroupID, groupSpec]
	// collided are two different groups of the policy with one identifier.
	collided *[2]groupSpec
}

// compile compiles a NetworkPolicy. Whatever is wrong with it is reported,
// and left out in such a way that it allows nothing.
func compile(object *networkingv1.NetworkPolicy, ids groupIDs) (*compiled, []model.Problem) {
	c := compiler{
		report:    report{object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: object.Namespace, Name: object.Name}},
		ids:       ids,
		namespace: object.Namespace,
	}
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: object.Namespace, Name: object.Name}
	out := &compiled{policy: model.Policy{ID: id}}
	pods, errs := label.Compile(&object.Spec.PodSelector, "spec.podSelector")
	for _, err := range errs {
		c.add(err.Field, "%s; all pods of the namespace are isolated, and no rule applies", err.ErrorBody())
	}
	if len(errs) > 0 {
		pods = label.Everything()
	}
	c.target = selectionSpec{namespace: object.Namespace, pods: pods}
	out.target = c.target

	inDeclared, outDeclared := c.directions(object, out)
	ingress, egress := c.ingress(object.Spec.Ingress), c.egress(object.Spec.Egress)
	if len(errs) > 0 {
		return out, c.problems
	}
	if inDeclared {
		out.policy.Ingress = c.bounded(model.Ingress, ingress)
	}
	if outDeclared {
		out.policy.Egress = c.bounded(model.Egress, egress)
	}
	c.closeCollided(&out.policy)
	out.groups = c.used(&out.policy)
	return out, c.problems
}

// directions finds which directions the policy isolates, and returns which of
// them policyTypes, or their default, declare. An unknown type isolates both:
// nobody knows which one was meant.
func (c *compiler) directions(object *networkingv1.NetworkPolicy, out *compiled) (ingress, egress bool) {
	unknown := false
	for i, t := range object.Spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			ingress = true
		case networkingv1.PolicyTypeEgress:
			egress = true
		default:
			unknown = true
			c.add(indexed("spec.policyTypes", i), "unsupported policy type %q: must be Ingress or Egress; both directions are isolated", t)
		}
	}
	if len(object.Spec.PolicyTypes) == 0 {
		ingress, egress = true, len(object.Spec.Egress) > 0
	}
	out.ingress, out.egress = ingress || unknown, egress || unknown
	return ingress, egress
}

// used returns the definitions of the groups that the policy refers to.
func (c *compiler) used(p *model.Policy) []groupSpec {
	var ids []model.GroupID
	for _, d := range model.Directions() {
		for _, r := range p.Rules(d) {
			ids = append(append(ids, r.Peers...), r.NamedPorts...)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	groups := make([]groupSpec, len(ids))
	for i, id := range ids {
		groups[i] = c.defined.Get(id)
	}
	return groups
}

func (c *compiler) define(g groupSpec) model.GroupID {
	if c.defined.Has(g.id) {
		if other := c.defined.Get(g.id); !other.same(&g) {
			c.collided = &[2]groupSpec{other, g}
		}
	}
	c.defined.Put(g.id, g)
	return g.id
}

// indexed returns "name[i]".
func indexed(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// ingress compiles ingress rules, one to one. Named ports are those of the
// policy's own pods, which the packet goes to.
func (c *compiler) ingress(rules []networkingv1.NetworkPolicyIngressRule) []model.Rule {
	var out []model.Rule
	for i, r := range rules {
		name := indexed("ingress", i)
		peers := c.peers(r.From, "spec."+name+".from")
		ports := c.ports(r.Ports, "spec."+name+".ports")
		out = c.rule(out, model.Rule{Name: name, Action: model.Allow}, peers, ports, c.named(ports, c.target))
	}
	return out
}

// egress compiles egress rules.
func (c *compiler) egress(rules []networkingv1.NetworkPolicyEgressRule) []model.Rule {
	var out []model.Rule
	for i, r := range rules {
		name := indexed("egress", i)
		peers := c.peers(r.To, "spec."+name+".to")
		ports := c.ports(r.Ports, "spec."+name+".ports")
		out = c.egressRule(out, model.Rule{Name: name, Action: model.Allow}, peers, ports)
	}
	return out
}

// egressRule appends an egress rule. A named port is one of the pod that the packet
// goes to, that is of the peer, so a rule with named ports is split: numbered
// ports to all peers, named ports to whoever is no selector's business, and
// for each selector the named ports of its own pods, where being a member
// means being the peer.
func (c *compiler) egressRule(out []model.Rule, r model.Rule, peers peerSet, ports portSet) []model.Rule {
	inCluster := c.named(ports, selectionSpec{namespaces: label.Everything(), pods: label.Everything()})
	if len(peers.selections) == 0 {
		return c.rule(out, r, peers, ports, inCluster)
	}
	out = c.rule(out, r, peers, ports, nil)
	out = c.rule(out, r, peerSet{networks: peers.networks}, portSet{}, inCluster)
	for _, g := range peers.selections {
		out = c.rule(out, r, peerSet{any: true}, portSet{}, c.named(ports, g.from))
	}
	return out
}

// named defines the groups of a rule's named ports over a selection.
func (c *compiler) named(ports portSet, s selectionSpec) []model.GroupID {
	var ids []model.GroupID
	for _, p := range ports.names {
		ids = append(ids, c.define(c.ids.portsOf(s, p)))
	}
	return ids
}

// rule appends a rule with the name and action of r, unless it could match nothing.
func (c *compiler) rule(out []model.Rule, r model.Rule, peers peerSet, ports portSet, named []model.GroupID) []model.Rule {
	if peers.empty() || !ports.any && len(ports.ranges) == 0 && len(named) == 0 {
		return out
	}
	r.AnyPeer, r.AnyPort, r.Ports, r.NamedPorts = peers.any, ports.any, ports.ranges, named
	r.Peers = slices.Grow(r.Peers, len(peers.selections)+len(peers.networks))
	for _, groups := range [...][]groupSpec{peers.selections, peers.networks} {
		for _, g := range groups {
			r.Peers = append(r.Peers, c.define(g))
		}
	}
	return append(out, r)
}
