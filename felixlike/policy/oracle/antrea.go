package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

func (c *Cluster) antreaPolicies() []antreaPolicy {
	var all []antreaPolicy
	for _, p := range c.Antrea.ClusterPolicies {
		all = append(all, antreaClusterPolicy(p))
	}
	for _, p := range c.Antrea.Policies {
		all = append(all, antreaPolicy{PolicySpec: p.Spec, namespace: p.Namespace, name: p.Name, annotations: p.Annotations})
	}
	return slices.DeleteFunc(all, func(p antreaPolicy) bool { return c.staged(p.annotations) })
}

// antreaPlace returns the priority of the policy's tier and its own. Where one of them is not
// valid, the policy is not understood, and the value is the least.
func (c *Cluster) antreaPlace(p antreaPolicy) (tier int32, priority float64, understood bool) {
	understood = true
	fixed := map[string]int32{"": 250, "emergency": 50, "securityops": 100, "networkops": 150, "platform": 200, "application": 250, "baseline": 253}
	tier, known := fixed[strings.ToLower(p.Tier)]
	if !known {
		at := slices.IndexFunc(c.Antrea.Tiers, func(t *antrea.Tier) bool { return t.Name == p.Tier })
		if at < 0 || c.Antrea.Tiers[at].Spec.Priority < 0 || c.Antrea.Tiers[at].Spec.Priority >= 250 {
			understood = false
		} else {
			tier = c.Antrea.Tiers[at].Spec.Priority
		}
	}
	if p.Priority < 1 || p.Priority > 10000 {
		return tier, 0, false
	}
	return tier, p.Priority, understood
}

// askAntrea evaluates Antrea's policies, those of the baseline tier or the others: by the priority
// of the tier, then that of the policy; of equal ones ClusterNetworkPolicies before
// NetworkPolicies, then by namespace and name. The first rule that matches decides. The action is
// empty if no rule matches.
func (q question) askAntrea(baseline bool) (RuleID, antrea.Action) {
	type placed struct {
		antreaPolicy
		tier       int32
		priority   float64
		understood bool
	}
	var all []placed
	for _, p := range q.cluster.antreaPolicies() {
		at := placed{antreaPolicy: p}
		at.tier, at.priority, at.understood = q.cluster.antreaPlace(p)
		if (at.tier == 253) == baseline {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b placed) int {
		first := map[bool]int{true: 0, false: 1}
		return cmp.Or(
			cmp.Compare(a.tier, b.tier), cmp.Compare(a.priority, b.priority),
			cmp.Compare(first[a.cluster], first[b.cluster]), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name),
		)
	})
	for _, p := range all {
		rules := p.Ingress
		if q.direction == model.Egress {
			rules = p.Egress
		}
		for i, r := range rules {
			if action := q.antreaAction(p.antreaPolicy, p.understood, r); action != "" {
				id := model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Namespace: p.namespace, Name: p.name}
				if baseline {
					id.Tier = model.TierBaseline
				}
				if !p.cluster {
					id.API = model.Antrea
				}
				return RuleID{id, fmt.Sprintf("%s[%d]", q.direction, i), model.RuleTitle(r.Name)}, action
			}
		}
	}
	return RuleID{}, ""
}

// IsAntreaSubject reports whether a rule of an object applies to a pod in a direction. Pods on a
// host's network are for the caller to leave out.
func (c *Cluster) IsAntreaSubject(o antrea.Object, d model.Direction, pod *corev1.Pod) bool {
	var p antreaPolicy
	switch o := o.(type) {
	case *antrea.ClusterNetworkPolicy:
		p = antreaClusterPolicy(o)
	case *antrea.NetworkPolicy:
		p = antreaPolicy{PolicySpec: o.Spec, namespace: o.Namespace, name: o.Name}
	}
	rules := p.Ingress
	if d == model.Egress {
		rules = p.Egress
	}
	return slices.ContainsFunc(rules, func(r antrea.Rule) bool {
		applies, _ := c.antreaApplies(p, r, pod)
		return applies
	})
}

// antreaAction returns the action of a rule for the packet, or "" if the rule does not match. What
// is not understood fails closed. A rule with l7Protocols, and one without a known action, denies
// everything. In another rule that is not understood, an Allow matches nothing, and
// others deny everything. If the place of the policy, or where the rule applies, is not understood,
// an Allow matches nothing, and a Pass denies the packets that it matches. So does a Pass in the tier
// baseline: Antrea refuses it, because no tier follows.
func (q question) antreaAction(p antreaPolicy, placed bool, r antrea.Rule) antrea.Action {
	applies, understood := q.node != nil && antreaAppliesToNode(p, r, q.node) && p.preDNAT() == q.preDNAT, true
	if q.node == nil {
		applies, understood = q.cluster.antreaApplies(p, r, q.subject)
	}
	if !applies || q.direction == model.Egress && p.preDNAT() && p.forNodes() {
		return "" // before DNAT, egress matches nothing
	}
	head := placed && understood
	peers, wrong := r.From, r.To
	if q.direction == model.Egress {
		peers, wrong = r.To, r.From
	}
	valid := len(r.ToServices) == 0 && len(wrong) == 0
	isPeer := len(peers) == 0
	for _, peer := range peers {
		is, known := q.isAntreaPeer(p, peer)
		isPeer, valid = isPeer || is, valid && known
	}
	isPort := len(r.Ports) == 0 && len(r.Protocols) == 0
	for _, port := range r.Ports {
		is, known := isAntreaPort(port, q)
		isPort, valid = isPort || is, valid && known
	}
	for _, protocol := range r.Protocols {
		is, known := isAntreaProtocol(protocol, q.packet)
		isPort, valid = isPort || is, valid && known
	}
	switch {
	case len(r.L7Protocols) > 0 || !slices.Contains([]antrea.Action{antrea.Allow, antrea.Drop, antrea.Reject, antrea.Pass}, r.Action):
		return antrea.Drop
	case r.Action == antrea.Allow && !(valid && head):
		return ""
	case !valid:
		return antrea.Drop
	case !isPeer || !isPort:
		return ""
	case r.Action == antrea.Pass && (!head || strings.EqualFold(p.Tier, "baseline")):
		return antrea.Drop
	}
	return r.Action
}

// antreaApplies reports whether a rule applies to a pod, by its own appliedTo or that of the
// policy, and whether that is understood. If not, the rule applies to every pod that the policy
// may be about; but of a group that is not understood, to the pods of the parts that are.
func (c *Cluster) antreaApplies(p antreaPolicy, r antrea.Rule, pod *corev1.Pod) (applies, understood bool) {
	entries := slices.Concat(p.AppliedTo, r.AppliedTo)
	understood = (len(p.AppliedTo) > 0) != (len(r.AppliedTo) > 0)
	groups := true
	for _, e := range entries {
		is, known := c.antreaSelects(p, e, pod)
		if applies = applies || is; known && e.Group != "" && e.PodSelector == nil && e.NamespaceSelector == nil {
			is, known = c.antreaGroupSelects(p, e.Group, pod)
			applies, groups = applies || is, groups && known
			continue
		}
		understood = understood && known
	}
	if understood && !groups {
		return applies, false
	}
	if !understood {
		if p.cluster {
			return c.inNamespaces(&metav1.LabelSelector{}, pod), false
		}
		return pod.Namespace == p.namespace, false
	}
	return applies, true
}

func (c *Cluster) antreaSelects(p antreaPolicy, e antrea.AppliedTo, pod *corev1.Pod) (selects, understood bool) {
	selectors := e.PodSelector != nil || e.NamespaceSelector != nil
	switch {
	case e.ServiceAccount != nil || e.Service != nil:
		return false, false
	case e.ExternalEntitySelector != nil || e.NodeSelector != nil:
		return false, !selectors && e.Group == "" // alone, it is no pod
	}
	if selectors == (e.Group != "") || !p.cluster && e.NamespaceSelector != nil {
		return false, false
	}
	if selectors {
		return c.antreaPods(p.namespace, e.PodSelector, e.NamespaceSelector, pod)
	}
	return false, true // antreaGroupSelects says
}

// antreaGroupSelects reports whether the group of an appliedTo selects a pod, and whether the group is understood.
func (c *Cluster) antreaGroupSelects(p antreaPolicy, name string, pod *corev1.Pod) (selects, understood bool) {
	understood = true
	seen := map[string]bool{}
	var look func(name string, depth int)
	look = func(name string, depth int) {
		spec := c.antreaGroup(p, name)
		switch {
		case spec == nil || depth > 1 && seen[name]:
			return // it does not exist, and selects no pod
		case onlyChildren(*spec):
			seen[name] = depth > 1
			understood = understood && depth == 0
			for _, child := range spec.ChildGroups {
				look(child, depth+1)
			}
			return
		case !antreaGroupUnderstood(*spec) || !p.cluster && spec.NamespaceSelector != nil:
			understood = false
			return
		case len(spec.IPBlocks) > 0:
			return // it is no pod
		}
		is, known := c.antreaPods(p.namespace, spec.PodSelector, spec.NamespaceSelector, pod)
		selects, understood = selects || is && known, understood && known
	}
	look(name, 0)
	return selects, understood
}
