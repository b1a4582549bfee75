package migrate

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
)

// kubernetesOrder is the order that Calico gives to NetworkPolicies of Kubernetes.
const kubernetesOrder = 1000

// Notes about Calico's policies.
const (
	noteSets   = "Selectors of rules also select Calico's NetworkSets, GlobalNetworkSets and HostEndpoints: the input must have all of them, or a Deny of their addresses is missing."
	noteLate   = "Calico asks policies with an order above 1000, or without one, after NetworkPolicies of Kubernetes. Those with a Deny are now asked before: they also deny what a NetworkPolicy allows."
	noteCopies = "Calico's copies of NetworkPolicies of Kubernetes (knp.default...) are left out: felixlike reads the originals."
	noteAdmin  = "ClusterNetworkPolicies of the tier Admin are asked behind all tiers of Calico. Calico asks them before its tiers with an order above 1000."
	noteStaged = "Staged policies of Calico are left out: Calico does not enforce them."
)

// looserOrder is about GlobalNetworkPolicies and NetworkPolicies of one order, of which one has a Deny.
const looserOrder = "A GlobalNetworkPolicy and a NetworkPolicy of Calico have the same order. They are converted in the order of their names. " +
	"Some versions of Calico compare names that begin with the namespace, and ask them in another order: give them different orders."

// looserAdmin is about policies of the tier default that allow, and policies of the tier Admin that may deny.
const looserAdmin = "Calico asks ClusterNetworkPolicies of the tier Admin, and AdminNetworkPolicies, before the tier default. Here policies of Antrea's kinds come before them: what these allow, the tier Admin does not deny."

// calicoPolicy is a decoded policy.
type calicoPolicy struct {
	at              int
	global          bool
	namespace, name string
	kind            string
	// tier is nil for the tier default.
	tier     *calicoTier
	order    float64
	subjects []selection
	// nodes select those whose host endpoints the policy selects. preDNAT: it is for these alone, before DNAT.
	nodes           []*metav1.LabelSelector
	preDNAT         bool
	ingress, egress *calicoDirection // nil if the policy is not about the direction
}

// calicoDirection has the rules of a direction in their order.
type calicoDirection struct{ rules []rule }

// calico converts all policies of Calico together, because their order matters.
func (c *conversion) calico(documents []document) {
	hosts, addresses := c.calicoHosts(documents)
	sets, tiers := append(c.calicoSets(documents), addresses...), c.calicoTiers(documents)
	byTier := map[*calicoTier][]*calicoPolicy{}
	for i, d := range documents {
		if isCalico(d.ref, "NetworkPolicy", "GlobalNetworkPolicy") {
			if p := c.calicoPolicy(i, d, sets, tiers, hosts); p != nil {
				byTier[p.tier] = append(byTier[p.tier], p)
			}
		}
	}
	for _, all := range byTier {
		slices.SortStableFunc(all, func(a, b *calicoPolicy) int {
			return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.name, b.name), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.kind, b.kind))
		})
	}
	last, behind := c.calicoDefault(byTier[nil])
	if slices.ContainsFunc(documents, isAdmin) {
		behind = ordered{true, true}
		if slices.ContainsFunc(last, (*converted).allowsFirst) {
			c.loosen(looserAdmin)
		}
		if len(tiers) > 0 {
			c.note(noteAdmin)
		}
	}
	c.emitTiers(tiers, byTier, behind)
	c.emitDefault(last, slices.ContainsFunc(documents, ofOtherTiers))
	c.isolateHosts(hosts)
}

// ordered says for each direction whether the order of policies matters, so that they become Antrea's.
type ordered struct{ ingress, egress bool }

// calicoDefault converts the policies of the tier default.
func (c *conversion) calicoDefault(all []*calicoPolicy) (converts []*converted, of ordered) {
	lastIngress := c.lastDeny(all, (*calicoPolicy).ofIngress)
	lastEgress := c.lastDeny(all, (*calicoPolicy).ofEgress)
	for i, p := range all {
		if i >= lastPriority {
			c.row(p.at).refuse("spec.order", "more than %d policies", lastPriority)
			continue
		}
		out := c.converted(p, float64(i+1))
		out.ingress = p.ingress.convert(p.global || i <= lastIngress, out.priority)
		out.egress = p.egress.convert(p.global || i <= lastEgress, out.priority)
		of.ingress, of.egress = of.ingress || len(out.ingress.parts) > 0, of.egress || len(out.egress.parts) > 0
		if nodes := c.ofNodes(p, out); nodes != nil {
			converts = append(converts, nodes)
		}
		if len(p.subjects) > 0 {
			converts = append(converts, out)
		}
	}
	return converts, of
}

func (c *conversion) converted(p *calicoPolicy, priority float64) *converted {
	return &converted{at: p.at, origin: c.row(p.at).Object, namespace: p.namespace, name: "calico-" + p.name, subjects: p.subjects, priority: priority}
}

func (p *calicoPolicy) ofIngress() *calicoDirection { return p.ingress }
func (p *calicoPolicy) ofEgress() *calicoDirection  { return p.egress }

// lastDeny removes the rules that deny and have no rule that allows behind them: the pods of a policy
// are isolated anyway. It returns the position of the last policy with another rule that denies, or -1.
func (c *conversion) lastDeny(all []*calicoPolicy, of func(*calicoPolicy) *calicoDirection) int {
	last, allowed := -1, false
	for i, p := range slices.Backward(all) {
		d := of(p)
		if d == nil || p.preDNAT { // nothing isolates before DNAT
			continue
		}
		kept := make([]rule, 0, len(d.rules))
		for _, r := range slices.Backward(d.rules) {
			if r.action == antrea.Allow {
				allowed = true
			} else if !allowed && p.order > kubernetesOrder {
				continue
			} else {
				last = max(last, i)
				if p.order >= kubernetesOrder {
					c.note(noteLate)
				}
				if slices.ContainsFunc(all, func(o *calicoPolicy) bool { return o.order == p.order && o.global != p.global }) {
					c.loosen(looserOrder)
				}
			}
			kept = append(kept, r)
		}
		slices.Reverse(kept)
		d.rules = kept
	}
	return last
}

// convert returns the direction with rules that are asked in their order, or as those of a NetworkPolicy.
func (d *calicoDirection) convert(ordered bool, priority float64) direction {
	if d == nil {
		return direction{}
	}
	out := direction{isolates: true}
	if ordered || slices.ContainsFunc(d.rules, rule.needsAntrea) {
		out.parts = []part{{priority: priority, rules: d.rules}}
	} else {
		out.allows = d.rules
	}
	return out
}

func isCalico(r Ref, kinds ...string) bool {
	return (r.APIVersion == "projectcalico.org/v3" || r.APIVersion == "crd.projectcalico.org/v1") && slices.Contains(kinds, r.Kind)
}

// calicoPolicy decodes a policy. It returns nil if it cannot be converted.
func (c *conversion) calicoPolicy(at int, d document, sets []calicoSet, tiers []*calicoTier, hosts []calicoHost) *calicoPolicy {
	row := c.row(at)
	var spec calicoSpec
	if len(d.spec) == 0 {
		row.refuse("spec", "required")
		return nil
	}
	for _, fault := range strict.Decode(d.spec, &spec) {
		row.refuse(specField(fault.Field), "%s", reasonOf(fault))
	}
	for _, name := range d.others {
		row.refuse(name, "has no counterpart")
	}
	c.refuseCalicoSpec(row, &spec, d.ref.Kind == "GlobalNetworkPolicy")
	// Under crd.projectcalico.org/v1, names begin with the tier.
	p := &calicoPolicy{
		at: at, global: d.ref.Kind == "GlobalNetworkPolicy", namespace: d.ref.Namespace, kind: d.ref.Kind,
		name: strings.TrimPrefix(d.ref.Name, "default."), tier: tierOf(row, spec.Tier, tiers), order: math.Inf(1),
	}
	if p.global && p.namespace != "" {
		row.refuse("metadata.namespace", "not allowed")
	}
	if !p.global && spec.NamespaceSelector != "" {
		row.refuse("spec.namespaceSelector", "not allowed in a NetworkPolicy")
	}
	if !p.global && p.namespace == "" {
		p.namespace = metav1.NamespaceDefault
	}
	if spec.Order != nil {
		p.order = *spec.Order
	}
	if len(row.Losses) > 0 {
		return nil
	}
	s := calicoScope{namespace: p.namespace}
	var err error
	if !isGlobal(spec.NamespaceSelector) { // that selects no pod
		p.subjects, err = s.selections(spec.Selector, "", spec.NamespaceSelector)
	}
	if err != nil {
		row.refuse("spec.selector", "%v", err)
		return nil
	}
	if p.global {
		if p.nodes, err = c.nodesOf(hosts, spec.Selector, spec.NamespaceSelector); err != nil {
			row.refuse("spec.selector", "%v", err)
			return nil
		}
	}
	if p.preDNAT = spec.PreDNAT; p.preDNAT {
		p.subjects = nil
		if len(p.nodes) == 0 {
			row.refuse("spec.preDNAT", "the input has no host endpoint with interfaceName \"*\" that it selects")
			return nil
		}
	}
	c.refuseTier(p)
	rules := calicoRules{c: c, row: row, scope: s, sets: sets, tiered: p.tier != nil}
	if len(spec.Types) == 0 && groupOf(d.ref.APIVersion) == "crd.projectcalico.org" {
		// Calico's API server sets types. An object without was written past it, and is for both directions (ExtractPolicyMetadata in
		// felix/calc/policy_sorter.go).
		spec.Types = []string{"Ingress", "Egress"}
	}
	if slices.Contains(spec.Types, "Ingress") || len(spec.Types) == 0 && (len(spec.Ingress) > 0 || len(spec.Egress) == 0) {
		p.ingress = rules.direction(spec.Ingress, "ingress")
	}
	if slices.Contains(spec.Types, "Egress") || len(spec.Types) == 0 && len(spec.Egress) > 0 {
		p.egress = rules.direction(spec.Egress, "egress")
	}
	if rules.refused || len(p.subjects)+len(p.nodes) == 0 {
		if !rules.refused {
			row.refuse("spec.selector", "it selects no pod, and no node of a host endpoint that is converted")
		}
		return nil
	}
	return p
}

// specField returns the field inside the spec.
func specField(field string) string { return strings.TrimSuffix("spec."+field, ".") }

// refuseCalicoSpec reports the fields of a policy that cannot be converted.
func (c *conversion) refuseCalicoSpec(row *Object, spec *calicoSpec, global bool) {
	if spec.ServiceAccountSelector != "" {
		row.refuse("spec.serviceAccountSelector", "felixlike does not select by service account")
	}
	refuseHostFields(row, spec, global)
	for _, t := range spec.Types {
		if t != "Ingress" && t != "Egress" {
			row.refuse("spec.types", "unknown type %q", t)
		}
	}
	slices.SortFunc(row.Losses, func(a, b Loss) int { return cmp.Compare(a.Field, b.Field) })
}

// calicoSets returns the sets of networks. The policies that select them get their prefixes.
func (c *conversion) calicoSets(documents []document) []calicoSet {
	var all []calicoSet
	for i, d := range documents {
		if !isCalico(d.ref, "NetworkSet", "GlobalNetworkSet") {
			continue
		}
		row := c.row(i)
		var spec struct {
			Nets                 []string        `json:"nets,omitempty"`
			AllowedEgressDomains json.RawMessage `json:"allowedEgressDomains,omitempty"`
		}
		for _, fault := range strict.Decode(d.spec, &spec) {
			row.lose(specField(fault.Field), "%s", reasonOf(fault))
		}
		if len(spec.AllowedEgressDomains) > 0 {
			row.lose("spec.allowedEgressDomains", "felixlike does not select by domain name")
		}
		set := calicoSet{name: d.ref.Name, namespace: d.ref.Namespace, labels: map[string]string{}, nets: spec.Nets, incomplete: len(row.Losses) > 0}
		if d.ref.Kind == "NetworkSet" && set.namespace == "" {
			set.namespace = metav1.NamespaceDefault
		}
		for k, v := range d.labels {
			set.labels[k] = v
		}
		set.labels["projectcalico.org/kind"], set.labels["projectcalico.org/name"] = d.ref.Kind, d.ref.Name
		if set.namespace != "" {
			set.labels[calicoNamespace] = set.namespace
		}
		all = append(all, set)
	}
	return all
}

// Labels by which Calico selects namespaces.
const (
	calicoNamespace       = "projectcalico.org/namespace"
	calicoNamespacePrefix = "pcns."
	calicoName            = "projectcalico.org/name"
	kubernetesName        = corev1.LabelMetadataName
)
