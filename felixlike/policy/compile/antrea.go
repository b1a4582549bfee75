package compile

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

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
	compiler
	id      antrea.ID
	spec    *antrea.PolicySpec
	objects AntreaObjects
	within  AntreaNamespace
	// closed is true if tier or priority are not valid.
	closed bool
	// uses are the tiers and groups that were looked up, whether they exist or not.
	uses smallmap.Set[antrea.ID]
}

// antreaTarget is where a rule applies.
type antreaTarget struct {
	selections []Selection
	// closed is true if the appliedTo cannot be understood. The rule then applies to all pods.
	closed bool
	// key is equal for equal targets.
	key string
}

// antreaPart are consecutive rules of one target.
type antreaPart struct {
	target          antreaTarget
	ingress, egress []model.Rule
}

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

// AntreaMatchesSelf reports whether a rule has pods of the subject's own namespace as peers. Such a
// policy is compiled once for each namespace.
func AntreaMatchesSelf(object antrea.Object) bool {
	if object.ID().Kind != antrea.KindClusterNetworkPolicy {
		return false
	}
	self := func(p antrea.Peer) bool { return p.Namespaces != nil && p.Namespaces.Match == antrea.MatchSelf }
	spec := AntreaSpec(object)
	return slices.ContainsFunc(slices.Concat(spec.Ingress, spec.Egress), func(r antrea.Rule) bool {
		return slices.ContainsFunc(slices.Concat(r.From, r.To), self)
	})
}

// AntreaPolicy compiles a policy of Antrea's API. Rules with one target are one policy of the model;
// if there are several targets, each run of rules with the same one is a part. It reports each
// part that is not valid, and fails closed, as ClusterNetworkPolicy does. uses are the tiers and
// groups on which the result depends.
func AntreaPolicy(object antrea.Object, objects AntreaObjects, within AntreaNamespace, ids GroupIDs) (policies []*Policy, problems []model.Problem, uses []antrea.ID) {
	id := object.ID()
	c := antreaCompiler{
		compiler: compiler{ids: ids, namespace: id.Namespace, whole: true, Report: Report{Object: id.Ref()}},
		id:       id, spec: AntreaSpec(object), objects: objects, within: within,
	}
	tier, precedence := c.place()
	parts := c.bounded(append(c.direction(model.Ingress, c.spec.Ingress), c.direction(model.Egress, c.spec.Egress)...))
	if len(parts) > 1 && !slices.ContainsFunc(parts, func(p antreaPart) bool { return p.target.key != parts[0].target.key }) {
		whole := antreaPart{target: parts[0].target}
		for _, p := range parts {
			whole.ingress, whole.egress = append(whole.ingress, p.ingress...), append(whole.egress, p.egress...)
		}
		parts = []antreaPart{whole}
	}
	for i, p := range parts {
		out := &Policy{Targets: p.target.selections, Ingress: len(p.ingress) > 0, Egress: len(p.egress) > 0}
		out.Model = model.Policy{ID: c.policyID(tier), Precedence: precedence, Ingress: p.ingress, Egress: p.egress}
		if len(parts) > 1 {
			out.Model.ID.Part = uint16(i + 1)
		}
		c.closeCollided(&out.Model)
		out.Groups = c.used(&out.Model)
		if len(out.Targets) > 0 {
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

// The tiers that always exist, and the limits of the API.
const (
	antreaDefaultTier      = "application"
	antreaBaselineTier     = "baseline"
	antreaBaselinePriority = 253
	// AntreaMaxTier is the greatest priority of other tiers.
	AntreaMaxTier = 249

	antreaMinPriority, antreaMaxPriority = 1, 10000
)

// AntreaTier returns the priority of a tier that always exists. Its name may be spelt with capital
// letters.
func AntreaTier(name string) (uint16, bool) {
	switch strings.ToLower(name) {
	case "emergency":
		return 50, true
	case "securityops":
		return 100, true
	case "networkops":
		return 150, true
	case "platform":
		return 200, true
	case antreaDefaultTier, "":
		return 250, true
	case antreaBaselineTier:
		return antreaBaselinePriority, true
	}
	return 0, false
}

// AntreaTierProblems reports a tier that cannot be in force.
func AntreaTierProblems(t *antrea.Tier) []model.Problem {
	r := Report{Object: t.ID().Ref()}
	if fixed, is := AntreaTier(t.Name); is {
		if t.Spec.Priority != int32(fixed) {
			r.Add("spec.priority", "%d: tier %s always has priority %d", t.Spec.Priority, t.Name, fixed)
		}
	} else if t.Spec.Priority < 0 || t.Spec.Priority > AntreaMaxTier {
		r.Add("spec.priority", "%d is not between 0 and %d; policies of the tier fail closed", t.Spec.Priority, AntreaMaxTier)
	}
	return r.Problems
}

// place returns the place of the policy in the order. Without a valid tier or priority the policy
// is closed, and asked first.
func (c *antreaCompiler) place() (model.Tier, model.Precedence) {
	tier := model.TierAdmin
	var at model.Precedence
	if fixed, is := AntreaTier(c.spec.Tier); is {
		at.Tier = fixed
		if fixed == antreaBaselinePriority {
			tier = model.TierBaseline
		}
	} else {
		id := antrea.ID{Kind: antrea.KindTier, Name: c.spec.Tier}
		c.uses.Add(id)
		switch t, _ := c.objects(id).(*antrea.Tier); {
		case t == nil:
			c.close("spec.tier", "tier %q does not exist", c.spec.Tier)
		case len(AntreaTierProblems(t)) > 0:
			c.close("spec.tier", "tier %q has no valid priority", c.spec.Tier)
		default:
			at.Tier = uint16(t.Spec.Priority)
		}
	}
	if p := c.spec.Priority; p >= antreaMinPriority && p <= antreaMaxPriority {
		at.Priority = p
	} else {
		c.close("spec.priority", "%v is not between %d and %d", p, antreaMinPriority, antreaMaxPriority)
	}
	return tier, at
}

// close notes that tier or priority are not valid.
func (c *antreaCompiler) close(field, format string, args ...any) {
	c.closed = true
	c.Add(field, format+"; every Allow matches nothing, and every Pass denies what it matches", args...)
}

// direction compiles the rules of a direction to parts.
func (c *antreaCompiler) direction(d model.Direction, rules []antrea.Rule) []antreaPart {
	var parts []antreaPart
	for i := range rules {
		r := &rules[i]
		name := indexed(d.String(), i)
		target := c.target(r, "spec."+name)
		c.targets = target.selections
		out := c.compileRule(d, name, r, c.closed || target.closed)
		if len(out) == 0 {
			continue
		}
		if n := len(parts); n == 0 || parts[n-1].target.key != target.key {
			parts = append(parts, antreaPart{target: target})
		}
		last := &parts[len(parts)-1]
		if d == model.Ingress {
			last.ingress = append(last.ingress, out...)
		} else {
			last.egress = append(last.egress, out...)
		}
	}
	return parts
}

// bounded returns the parts, with closed rules in a direction that exceeds a limit.
func (c *antreaCompiler) bounded(parts []antreaPart) []antreaPart {
	for _, d := range model.Directions() {
		var all []model.Rule
		for _, p := range parts {
			all = append(all, p.rules(d)...)
		}
		reason := c.exceeded(all)
		if reason == "" {
			continue
		}
		effect := "no rule of this direction applies"
		if len(closedRules(all)) > 0 {
			effect = "this direction denies everything"
		}
		c.Add("spec."+d.String(), "%s; %s", reason, effect)
		for i := range parts {
			if closed := closedRules(parts[i].rules(d)); d == model.Ingress {
				parts[i].ingress = closed
			} else {
				parts[i].egress = closed
			}
		}
	}
	return slices.DeleteFunc(parts, func(p antreaPart) bool { return len(p.ingress)+len(p.egress) == 0 })
}

func (p *antreaPart) rules(d model.Direction) []model.Rule {
	if d == model.Ingress {
		return p.ingress
	}
	return p.egress
}

// target compiles where a rule applies.
func (c *antreaCompiler) target(r *antrea.Rule, path string) antreaTarget {
	switch {
	case len(c.spec.AppliedTo) > 0 && len(r.AppliedTo) > 0:
		c.Add(path+".appliedTo", "not allowed together with spec.appliedTo; the rule is taken for all pods, an Allow matches nothing, and a Pass denies what it matches")
		return c.everyPod()
	case len(c.spec.AppliedTo) > 0:
		return c.appliedTo(c.spec.AppliedTo, "spec.appliedTo")
	case len(r.AppliedTo) > 0:
		return c.appliedTo(r.AppliedTo, path+".appliedTo")
	}
	c.Add(path, "neither the rule nor the policy has an appliedTo; the rule is taken for all pods, an Allow matches nothing, and a Pass denies what it matches")
	return c.everyPod()
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
		selections, ok := c.appliedToEntry(e, indexed(path, i))
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
	out.key = strings.Join(keys, "\x00")
	return out
}

// distinct removes the problems from that index on that are there before.
func distinct(problems []model.Problem, from int) []model.Problem {
	return append(problems[:from], slices.DeleteFunc(slices.Clone(problems[from:]), func(p model.Problem) bool {
		return slices.Contains(problems[:from], p)
	})...)
}

// appliedToEntry compiles an entry. ok is false if it cannot be understood.
func (c *antreaCompiler) appliedToEntry(e antrea.AppliedTo, path string) (selections []Selection, ok bool) {
	const effect = "; the policy or rule is taken for all pods, an Allow matches nothing, and a Pass denies what it matches"
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
		c.Add(path+field, "not supported: it selects no pod")
		return nil, true
	case e.Group != "" && (e.PodSelector != nil || e.NamespaceSelector != nil):
		return refuse("", "group together with a selector")
	case e.Group != "":
		return c.appliedToGroup(e.Group, path+".group", effect)
	case e.PodSelector == nil && e.NamespaceSelector == nil:
		return refuse("", "needs a podSelector, a namespaceSelector or a group")
	case c.namespace != "" && e.NamespaceSelector != nil:
		return refuse(".namespaceSelector", "not allowed in a NetworkPolicy, which applies to pods of its namespace")
	}
	s, ok := c.pods(e.PodSelector, e.NamespaceSelector, path, effect)
	return []Selection{s}, ok
}

// appliedToGroup resolves a group. One that does not exist, and a group of prefixes, have no
// pods.
func (c *antreaCompiler) appliedToGroup(name, path, effect string) (selections []Selection, ok bool) {
	group := c.group(name, path, true, effect)
	switch {
	case group.bad:
		return nil, false
	case group.missing:
		c.Add(path, "group %q, or a child of it, does not exist: it selects no pod", name)
	case len(group.blocks) > 0:
		c.Add(path, "group %q has ipBlocks: these select no pod", name)
	}
	for _, s := range group.selections {
		if c.namespace != "" && s.Namespaces != nil {
			c.Add(path, "group %q has a namespaceSelector, which is not allowed in the appliedTo of a NetworkPolicy%s", name, effect)
			return nil, false
		}
	}
	return group.selections, true
}

// pods compiles a selection by selectors, of which one may be nil. A podSelector alone selects in
// the namespace of a NetworkPolicy, and in all namespaces for a ClusterNetworkPolicy.
func (c *antreaCompiler) pods(pods, namespaces *metav1.LabelSelector, path, effect string) (Selection, bool) {
	s := Selection{Namespace: c.namespace, Pods: label.Everything()}
	if c.namespace == "" {
		s.Namespaces = label.Everything()
	}
	ok := true
	if pods != nil {
		s.Pods, ok = c.selector(pods, path+".podSelector", effect)
	}
	if namespaces != nil {
		var understood bool
		s.Namespace = ""
		s.Namespaces, understood = c.selector(namespaces, path+".namespaceSelector", effect)
		ok = ok && understood
	}
	return s, ok
}

func (c *antreaCompiler) selector(s *metav1.LabelSelector, path, effect string) (*label.Selector, bool) {
	compiled, errs := label.Compile(s, path)
	for _, err := range errs {
		c.Add(err.Field, "%s%s", err.ErrorBody(), effect)
	}
	return compiled, len(errs) == 0
}

// antreaGroup is a resolved group.
type antreaGroup struct {
	selections []Selection
	blocks     []ipBlock
	// missing is true if the group, or a child, does not exist. bad is true if one cannot be
	// understood.
	missing, bad bool
}

// group resolves a group of the policy's own kind: a Group of its namespace, or a ClusterGroup.
func (c *antreaCompiler) group(name, path string, children bool, effect string) antreaGroup {
	id := antrea.ID{Kind: antrea.KindClusterGroup, Name: name}
	if c.namespace != "" {
		id = antrea.ID{Kind: antrea.KindGroup, Namespace: c.namespace, Name: name}
	}
	c.uses.Add(id)
	var spec *antrea.GroupSpec
	switch o := c.objects(id).(type) {
	case *antrea.ClusterGroup:
		spec = &o.Spec
	case *antrea.Group:
		spec = &o.Spec
	default:
		return antreaGroup{missing: true}
	}
	var out antreaGroup
	fail := func(format string, args ...any) {
		out.bad = true
		c.Add(path, "group %q: %s%s", name, fmt.Sprintf(format, args...), effect)
	}
	pods := spec.PodSelector != nil || spec.NamespaceSelector != nil
	switch {
	case spec.ServiceReference != nil:
		fail("serviceReference is not supported")
	case spec.ExternalEntitySelector != nil:
		fail("externalEntitySelector is not supported")
	case len(spec.ChildGroups) > 0 && !children:
		fail("a child group must not have childGroups")
	case len(spec.ChildGroups) > 0 && (pods || len(spec.IPBlocks) > 0), pods && len(spec.IPBlocks) > 0:
		fail("needs one of selectors, ipBlocks and childGroups")
	case len(spec.ChildGroups) > 0:
		for _, child := range spec.ChildGroups {
			g := c.group(child, path, false, effect)
			if g.missing {
				c.Add(path, "group %q: child group %q does not exist", name, child)
			}
			out.selections, out.blocks = append(out.selections, g.selections...), append(out.blocks, g.blocks...)
			out.missing, out.bad = out.missing || g.missing, out.bad || g.bad
		}
	case len(spec.IPBlocks) > 0:
		for i := range spec.IPBlocks {
			b, err := c.antreaBlock(&spec.IPBlocks[i])
			if err != "" {
				fail("%s", err)
			}
			out.blocks = append(out.blocks, b)
		}
	case pods:
		s, ok := c.pods(spec.PodSelector, spec.NamespaceSelector, path, effect)
		out.selections, out.bad = []Selection{s}, !ok
	default:
		fail("it has no content that is understood")
	}
	return out
}

// antreaBlock compiles an ipBlock, and returns its fault as text.
func (c *antreaCompiler) antreaBlock(b *antrea.IPBlock) (ipBlock, string) {
	inner := compiler{whole: true}
	block, _, ok := inner.block(&networkingv1.IPBlock{CIDR: b.CIDR, Except: b.Except}, "")
	if !ok {
		return ipBlock{}, inner.Problems[0].Reason
	}
	return block, ""
}

// compileRule compiles a rule. closed is true if tier, priority or appliedTo are not valid.
func (c *antreaCompiler) compileRule(d model.Direction, name string, r *antrea.Rule, closed bool) []model.Rule {
	path := "spec." + name
	action, known := antreaAction(r.Action)
	if !known {
		c.Add(path+".action", "unsupported action %q: must be Allow, Drop, Reject or Pass; the rule denies everything", r.Action)
		return []model.Rule{denyAll(name)}
	}
	before := len(c.Problems)
	c.refuse(d, r, path)
	of, field := r.From, ".from"
	if d == model.Egress {
		of, field = r.To, ".to"
	}
	peers := c.antreaPeers(of, path+field)
	ports := c.antreaPorts(r.Ports, path+".ports")
	if len(c.Problems) > before {
		// For Antrea, an Allow with l7Protocols decides each packet that it matches: none may go
		// on to later rules.
		none := action == model.Allow && len(r.L7Protocols) == 0
		effect := "; the rule denies everything"
		if none {
			effect = "; the rule matches nothing"
		}
		for i := range c.Problems[before:] {
			c.Problems[before+i].Reason += effect
		}
		if none {
			return nil
		}
		return []model.Rule{denyAll(name)}
	}
	rule := model.Rule{Name: name, Action: action, Log: r.EnableLogging}
	if faults := validation.IsValidLabelValue(r.LogLabel); len(faults) > 0 {
		c.Add(path+".logLabel", "invalid label %q: %s; the lines have none", shown(r.LogLabel), strings.Join(faults, ", "))
	} else if r.EnableLogging {
		rule.LogLabel = r.LogLabel
	}
	switch {
	case closed && action == model.Allow:
		return nil
	case closed && action == model.Pass:
		rule.Action = model.Deny
	}
	if d == model.Ingress {
		return c.rule(nil, rule, peers, ports, c.named(ports, c.targets...))
	}
	return c.egressRule(nil, rule, peers, ports)
}

func antreaAction(a antrea.Action) (model.Action, bool) {
	switch a {
	case antrea.Allow:
		return model.Allow, true
	case antrea.Drop:
		return model.Deny, true
	case antrea.Reject:
		return model.Reject, true
	case antrea.Pass:
		return model.Pass, true
	}
	return model.Deny, false
}

// refuse reports the fields of a rule that are not supported.
func (c *antreaCompiler) refuse(d model.Direction, r *antrea.Rule, path string) {
	if len(r.Protocols) > 0 {
		c.Add(path+".protocols", "not supported")
	}
	if len(r.L7Protocols) > 0 {
		c.Add(path+".l7Protocols", "not supported")
	}
	if len(r.ToServices) > 0 {
		c.Add(path+".toServices", "not supported")
	}
	switch {
	case d == model.Ingress && len(r.To) > 0:
		c.Add(path+".to", "not allowed in an ingress rule")
	case d == model.Egress && len(r.From) > 0:
		c.Add(path+".from", "not allowed in an egress rule")
	}
}

// antreaPeers compiles the peers of a rule. An empty list means any peer. It reports an invalid peer,
// which closes the rule.
func (c *antreaCompiler) antreaPeers(peers []antrea.Peer, path string) peerSet {
	out := peerSet{any: len(peers) == 0}
	var texts []string
	var blocks []ipBlock
	var seen smallmap.Set[model.GroupID]
	add := func(to *[]Group, g Group) {
		c.define(g)
		if !seen.Has(g.ID) {
			seen.Add(g.ID)
			*to = append(*to, g)
		}
	}
	addBlock := func(b ipBlock) { texts, blocks = append(texts, b.text()), append(blocks, b) }
	for i, p := range peers {
		path := indexed(path, i)
		if field := unsupportedPeer(p); field != "" {
			c.Add(path+"."+field, "not supported")
			continue
		}
		switch {
		case antreaPeerKinds(p) != 1:
			c.Add(path, "needs selectors of pods, or one of ipBlock, group and nodeSelector")
		case p.NodeSelector != nil:
			if nodes, ok := c.selector(p.NodeSelector, path+".nodeSelector", ""); ok {
				add(&out.networks, c.ids.nodesOf(nodes))
			}
		case p.IPBlock != nil:
			b, fault := c.antreaBlock(p.IPBlock)
			if fault != "" {
				c.Add(path+".ipBlock", "%s", fault)
				continue
			}
			addBlock(b)
		case p.Group != "":
			g := c.group(p.Group, path+".group", true, "")
			if g.missing {
				c.Add(path+".group", "group %q, or a child of it, does not exist", p.Group)
			}
			for _, s := range g.selections {
				if !g.bad {
					add(&out.selections, c.ids.addressesOf(s))
				}
			}
			for _, b := range g.blocks {
				if !g.bad {
					addBlock(b)
				}
			}
		default:
			if s, ok := c.peerPods(p, path); ok {
				add(&out.selections, c.ids.addressesOf(s))
			}
		}
	}
	if len(blocks) > 0 {
		slices.Sort(texts)
		out.networks = append(out.networks, c.networks(slices.Compact(texts), blocks, path)...)
	}
	return out
}

// peerPods compiles a peer with selectors of pods.
func (c *antreaCompiler) peerPods(p antrea.Peer, path string) (Selection, bool) {
	if p.Namespaces == nil {
		return c.pods(p.PodSelector, p.NamespaceSelector, path, "")
	}
	switch {
	case c.id.Kind != antrea.KindClusterNetworkPolicy:
		c.Add(path+".namespaces", "not allowed in a NetworkPolicy")
	case p.NamespaceSelector != nil:
		c.Add(path, "namespaces together with a namespaceSelector")
	case len(p.Namespaces.SameLabels) > 0:
		c.Add(path+".namespaces.sameLabels", "not supported")
	case p.Namespaces.Match != antrea.MatchSelf:
		c.Add(path+".namespaces.match", "%q is not supported: must be Self", p.Namespaces.Match)
	default:
		s, ok := c.pods(p.PodSelector, nil, path, "")
		s.Namespace, s.Namespaces = c.within.Name, nil
		return s, ok
	}
	return Selection{}, false
}

// unsupportedPeer returns the field of a peer that is set and not supported, or "".
func unsupportedPeer(p antrea.Peer) string {
	switch {
	case p.FQDN != "":
		return "fqdn"
	case p.ServiceAccount != nil:
		return "serviceAccount"
	case p.ExternalEntitySelector != nil:
		return "externalEntitySelector"
	case p.Scope != "" && p.Scope != "Cluster":
		return "scope"
	}
	return ""
}

// antreaPeerKinds counts the kinds of peers that are set in one.
func antreaPeerKinds(p antrea.Peer) int {
	n := 0
	for _, set := range [...]bool{
		p.PodSelector != nil || p.NamespaceSelector != nil || p.Namespaces != nil,
		p.IPBlock != nil, p.Group != "", p.NodeSelector != nil,
	} {
		if set {
			n++
		}
	}
	return n
}

// antreaPorts compiles the ports of a rule. It reports an invalid port, which closes the rule.
func (c *antreaCompiler) antreaPorts(ports []antrea.Port, path string) portSet {
	var all []networkingv1.NetworkPolicyPort
	for i, p := range ports {
		if p.SourcePort != nil || p.SourceEndPort != nil {
			c.Add(indexed(path, i)+".sourcePort", "not supported")
		}
		all = append(all, networkingv1.NetworkPolicyPort{Protocol: p.Protocol, Port: p.Port, EndPort: p.EndPort})
	}
	return c.ports(all, path)
}
