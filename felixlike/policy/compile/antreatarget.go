package compile

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// antreaTarget is where a rule applies.
type antreaTarget struct {
	selections []Selection
	// nodes select nodes. Then there are no selections.
	nodes []*label.Selector
	// closed is true if the appliedTo cannot be understood. The rule then applies to all pods, or if it is a group that cannot be
	// understood, to the pods that this selected before: who edits a group must not widen a policy.
	closed bool
	// key is equal for equal targets.
	key string
}

// target compiles where a rule applies.
func (c *antreaCompiler) target(r *antrea.Rule, path string) antreaTarget {
	switch {
	case len(c.spec.AppliedTo) > 0 && len(r.AppliedTo) > 0:
		c.Add(path+".appliedTo", "not allowed together with spec.appliedTo%s", c.toEveryPod())
		return c.everyPod()
	case len(c.spec.AppliedTo) > 0:
		return c.appliedTo(c.spec.AppliedTo, "spec.appliedTo")
	case len(r.AppliedTo) > 0:
		return c.appliedTo(r.AppliedTo, path+".appliedTo")
	}
	c.Add(path, "neither the rule nor the policy has an appliedTo%s", c.toEveryPod())
	return c.everyPod()
}

// toEveryPod is the effect of an appliedTo that cannot be understood.
func (c *antreaCompiler) toEveryPod() string {
	pods := "all pods"
	if c.namespace != "" {
		pods += " of the namespace"
	}
	return "; it then selects " + pods + ", an Allow matches nothing, and a Pass denies what it matches"
}

// everyPod is the target in place of one that cannot be understood: the pods that the policy may
// apply to.
func (c *antreaCompiler) everyPod() antreaTarget {
	s := Selection{Namespaces: label.Everything(), Pods: label.Everything()}
	if c.namespace != "" {
		s = Selection{Namespace: c.namespace, Pods: label.Everything()}
	}
	return antreaTarget{selections: c.narrowed([]Selection{s}), closed: true, key: "every pod"}
}

// narrowed restricts selections to the namespace for which the policy is compiled.
func (c *antreaCompiler) narrowed(all []Selection) []Selection {
	if c.within.Name == "" {
		return all
	}
	var kept []Selection
	for _, s := range all {
		if s.Namespaces == nil && s.Namespace == c.within.Name || s.Namespaces != nil && s.Namespaces.Matches(c.within.Labels) {
			kept = append(kept, Selection{Namespace: c.within.Name, Pods: s.Pods})
		}
	}
	return kept
}

// appliedTo compiles a list of entries.
func (c *antreaCompiler) appliedTo(entries []antrea.AppliedTo, path string) antreaTarget {
	out := antreaTarget{}
	before := len(c.Problems)
	bad := false
	for i, e := range entries {
		if c.toNodes && e.NodeSelector != nil {
			if nodes := c.appliedToNodes(e.NodeSelector, indexed(path, i)+".nodeSelector"); nodes != nil {
				out.nodes = append(out.nodes, nodes)
			}
			continue
		}
		selections, ok := c.appliedToEntry(e, indexed(path, i))
		if ok && e.Group != "" {
			selections, out.closed = c.appliedToGroup(e.Group, indexed(path, i)+".group", out.closed)
		}
		out.selections = append(out.selections, selections...)
		bad = bad || !ok
	}
	c.Problems = distinct(c.Problems, before) // policies have one appliedTo for all rules
	if bad {
		return c.everyPod()
	}
	out.selections = c.narrowed(out.selections)
	var keys []string
	for _, s := range out.selections {
		keys = append(keys, s.key())
	}
	for _, s := range out.nodes {
		keys = append(keys, "nodes "+s.String()) // no key of a selection begins so
	}
	out.key = strings.Join(keys, "\x00")
	return out
}

// distinct removes the problems from that index on that are there before.
func distinct(problems []model.Problem, from int) []model.Problem {
	return append(problems[:from], slices.DeleteFunc(slices.Clone(problems[from:]), func(p model.Problem) bool {
		return slices.Contains(problems[:from], p)
	})...)
}

// findTargets finds out whether the policy is for nodes or for pods.
func (c *antreaCompiler) findTargets() {
	entries := slices.Clone(c.spec.AppliedTo)
	for _, r := range slices.Concat(c.spec.Ingress, c.spec.Egress) {
		entries = append(entries, r.AppliedTo...)
	}
	only := func(e antrea.AppliedTo) bool {
		nodes := e.NodeSelector
		e.NodeSelector = nil
		return nodes != nil && e == antrea.AppliedTo{}
	}
	pods := slices.ContainsFunc(entries, func(e antrea.AppliedTo) bool { return !only(e) })
	c.toNodes = len(entries) > 0 && !pods && c.id.Kind == antrea.KindClusterNetworkPolicy
}

// appliedToNodes compiles an entry for nodes. It returns nil if it selects none.
func (c *antreaCompiler) appliedToNodes(s *metav1.LabelSelector, path string) *label.Selector {
	if c.selectsNone {
		return nil
	}
	if c.matchesSelf {
		if c.within.Name == "" { // else it is reported already
			c.Add(path, "not allowed with a peer in the subject's own namespace, which a node does not have"+SelectsNoNode)
		}
		return nil
	}
	return c.selector(s, path, SelectsNoNode)
}

// SelectsNoNode is the effect of an entry of appliedTo for nodes that is not valid.
const SelectsNoNode = ": it selects no node"

// appliedToEntry compiles an entry, apart from a group. ok is false if it cannot be understood.
func (c *antreaCompiler) appliedToEntry(e antrea.AppliedTo, path string) (selections []Selection, ok bool) {
	effect := c.toEveryPod()
	refuse := func(field, format string, args ...any) ([]Selection, bool) {
		c.Add(path+field, format+effect, args...)
		return nil, false
	}
	switch {
	case e.ServiceAccount != nil:
		return refuse(".serviceAccount", "not supported")
	case e.Service != nil:
		return refuse(".service", "not supported")
	case e.NodeSelector != nil || e.ExternalEntitySelector != nil:
		field := ".nodeSelector"
		if e.NodeSelector == nil {
			field = ".externalEntitySelector"
		}
		if e.Group != "" || e.PodSelector != nil || e.NamespaceSelector != nil {
			return refuse(field, "not allowed together with a group or a selector of pods")
		}
		switch {
		case e.NodeSelector == nil:
			c.Add(path+field, "not supported"+SelectsNoPod)
		case c.id.Kind != antrea.KindClusterNetworkPolicy:
			c.Add(path+field, "not allowed in a NetworkPolicy, which applies to pods of its namespace"+SelectsNoPod)
		default:
			c.Add(path+field, "not allowed in a policy that applies to pods, too"+SelectsNoNode)
		}
		return nil, true
	case e.Group != "" && (e.PodSelector != nil || e.NamespaceSelector != nil):
		return refuse("", "group together with a selector")
	case e.Group != "":
		return nil, true
	case e.PodSelector == nil && e.NamespaceSelector == nil:
		return refuse("", "needs a podSelector, a namespaceSelector or a group")
	case c.namespace != "" && e.NamespaceSelector != nil:
		return refuse(".namespaceSelector", "not allowed in a NetworkPolicy, which applies to pods of its namespace")
	}
	s, ok := c.pods(e.PodSelector, e.NamespaceSelector, path, effect)
	return []Selection{s}, ok
}

// SelectsNoPod is the effect of an entry of appliedTo without pods.
const SelectsNoPod = ": it selects no pod"

// groupBefore is the effect of a group that cannot be understood.
const groupBefore = "; until it can be understood, the policy applies to the pods that the group selected before, an Allow matches nothing, and a Pass denies what it matches"

// appliedToGroup resolves a group. One that does not exist, and a group of prefixes, have no
// pods. Of one that cannot be understood it returns the pods of before, or if these are not known, those of the parts that can be understood.
// closed is true for such a group, or if it was.
func (c *antreaCompiler) appliedToGroup(name, path string, was bool) (selections []Selection, closed bool) {
	group := c.group(name, path, groupBefore)
	switch {
	case group.bad:
	case group.missing:
		c.Add(path, "group %q, or a child of it, does not exist"+SelectsNoPod, name)
	case len(group.blocks) > 0:
		c.Add(path, "group %q has ipBlocks: these select no pod", name)
	}
	selections = group.selections
	if c.namespace != "" {
		far := func(s Selection) bool { return s.Namespaces != nil }
		if selections = slices.DeleteFunc(slices.Clone(selections), far); len(selections) < len(group.selections) {
			c.Add(path, "group %q has a namespaceSelector, which is not allowed in the appliedTo of a NetworkPolicy%s", name, groupBefore)
			group.bad = true
		}
	}
	switch id := c.groupID(name); {
	case group.bad:
		if before, known := c.before[id]; known {
			selections = before
		}
		return selections, true
	case !group.missing && c.before != nil:
		c.before[id] = selections
	}
	return selections, was
}
