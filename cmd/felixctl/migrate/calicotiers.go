package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyapi "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
)

// defaultTierOrder is the order of Calico's tier default.
const defaultTierOrder = 1_000_000

// The priorities of converted tiers: between Antrea's tiers platform and application. The policies
// of the tier default become Antrea's of the tier application.
const (
	firstTierPriority = 201
	lastTierPriority  = 249
)

// ownTiers are the tiers that Calico makes itself. Only default has policies of projectcalico.org.
var ownTiers = []string{"default", "kube-admin", "kube-baseline", "adminnetworkpolicy", "baselineadminnetworkpolicy"}

// calicoTier is a tier of Calico before the tier default.
type calicoTier struct {
	at    int
	name  string
	order float64
	// passes: a packet that no rule of the tier matches goes to the next tier. Otherwise it is
	// denied, if a policy of the tier selects the pod.
	passes bool
	// fault is the reason why the policies of the tier cannot be converted.
	fault string
	// priority is that of Antrea's tier.
	priority int32
}

// calicoTiers returns the tiers of the input in their order.
func (c *conversion) calicoTiers(documents []document) []*calicoTier {
	var all []*calicoTier
	for i, d := range documents {
		if !isCalico(d.ref, "Tier") {
			continue
		}
		t := &calicoTier{at: i, name: d.ref.Name, order: math.Inf(1)}
		var spec struct {
			Order         *float64 `json:"order,omitempty"`
			DefaultAction string   `json:"defaultAction,omitempty"`
		}
		for _, fault := range strict.Decode(d.spec, &spec) {
			t.fault = fmt.Sprintf("%s: %s", specField(fault.Field), reasonOf(fault))
		}
		if spec.Order != nil {
			t.order = *spec.Order
		}
		t.passes = spec.DefaultAction == "Pass"
		switch {
		case t.fault != "":
		case spec.DefaultAction != "" && spec.DefaultAction != "Pass" && spec.DefaultAction != "Deny":
			t.fault = fmt.Sprintf("spec.defaultAction: %q is not known", spec.DefaultAction)
		case cmp.Or(cmp.Compare(t.order, defaultTierOrder), cmp.Compare(t.name, "default")) > 0:
			t.fault = "it is behind the tier default"
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b *calicoTier) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.name, b.name)) })
	next := int32(firstTierPriority)
	for _, t := range all {
		switch {
		case t.fault == "" && next > lastTierPriority:
			t.fault = fmt.Sprintf("more than %d tiers", lastTierPriority-firstTierPriority+1)
		case t.fault == "":
			t.priority = next
			next++
			continue
		}
		c.row(t.at).lose("", "%s; neither the tier nor its policies are converted", t.fault)
	}
	return all
}

// tierOf returns the tier of a policy: nil for default.
func tierOf(row *Object, name string, all []*calicoTier) *calicoTier {
	if name == "" || name == "default" {
		return nil
	}
	i := slices.IndexFunc(all, func(t *calicoTier) bool { return t.name == name })
	switch {
	case i >= 0 && all[i].fault == "":
		return all[i]
	case i >= 0:
		row.refuse("spec.tier", "tier %q: %s", name, all[i].fault)
	case slices.Contains(ownTiers, name):
		row.refuse("spec.tier", "tier %q is not one for policies of this kind", name)
	default:
		row.refuse("spec.tier", "tier %q is not in the input, so its place is not known", name)
	}
	return nil
}

// isAdmin reports whether a document is, becomes, or may be, a ClusterNetworkPolicy of the tier Admin.
func isAdmin(d document) bool {
	if isAdminPolicy(d.ref) {
		return d.ref.Kind == "AdminNetworkPolicy"
	}
	if d.ref.Kind != "ClusterNetworkPolicy" || groupOf(d.ref.APIVersion) != policyapi.GroupName {
		return false
	}
	var spec struct {
		Tier policyapi.Tier `json:"tier"`
	}
	return json.Unmarshal(d.spec, &spec) != nil || spec.Tier == policyapi.AdminTier
}

// emitTiers converts the tiers before default, and their policies. behind says where an order
// matters behind them: Antrea's Pass skips all of that.
func (c *conversion) emitTiers(tiers []*calicoTier, byTier map[*calicoTier][]*calicoPolicy, behind ordered) {
	passes := map[*calicoTier]ordered{} // where an order matters behind each tier: Antrea has no Pass to the next tier
	for _, t := range slices.Backward(tiers) {
		passes[t] = behind
		for _, p := range byTier[t] {
			behind.ingress, behind.egress = behind.ingress || p.ingress != nil, behind.egress || p.egress != nil
		}
	}
	for _, t := range tiers {
		if t.fault != "" {
			continue
		}
		object := &antrea.Tier{
			TypeMeta:   metav1.TypeMeta{APIVersion: antrea.GroupVersion().String(), Kind: antrea.KindTier.String()},
			ObjectMeta: metav1.ObjectMeta{Name: antreaTier(t), Annotations: map[string]string{OriginAnnotation: c.row(t.at).Object.String()}},
			Spec:       antrea.TierSpec{Priority: t.priority, Description: "Tier " + t.name + " of Calico"},
		}
		c.emit(t.at, []metav1.Object{object})
		for _, out := range c.tier(t, byTier[t], passes[t]) {
			c.emit(out.at, out.render())
		}
	}
}

// antreaTier is the name of the converted tier.
func antreaTier(t *calicoTier) string { return shortened("calico-" + t.name) }

// tier converts the policies of a tier.
func (c *conversion) tier(t *calicoTier, all []*calicoPolicy, behind ordered) []*converted {
	if len(all) >= lastPriority {
		for _, p := range all {
			c.row(p.at).refuse("spec.tier", "more than %d policies in tier %q", lastPriority-1, t.name)
		}
		return nil
	}
	for i, p := range all {
		if i > 0 && all[i-1].order == p.order && slices.ContainsFunc(all, func(o *calicoPolicy) bool { return o.order == p.order && o.global != p.global }) {
			c.loosen(looserOrder)
		}
	}
	ingress, egress := tierEnd(all, (*calicoPolicy).ofIngress, t.passes), tierEnd(all, (*calicoPolicy).ofEgress, t.passes)
	var out []*converted
	for i, p := range all {
		if behind.ingress && p.ingress.passes() || behind.egress && p.egress.passes() {
			c.row(p.at).refuse("spec.tier", "a Pass goes to the next tier of Calico; that of Antrea's kinds skips all tiers, and a tier, or the order of policies, behind tier %q matters", t.name)
			continue
		}
		one := c.converted(p, float64(i+1))
		one.tier = antreaTier(t)
		end := float64(len(all) + 1)
		one.ingress.parts, one.egress.parts = p.ingress.parts(one.priority, end, ingress), p.egress.parts(one.priority, end, egress)
		out = append(out, one)
	}
	return out
}

// tierEnd simplifies the rules of a tier in one direction, and reports whether packets that no rule
// matches are denied. It leaves out each Pass with nothing behind it in the tier.
func tierEnd(all []*calicoPolicy, of func(*calicoPolicy) *calicoDirection, passes bool) (denies bool) {
	all = slices.DeleteFunc(slices.Clone(all), func(p *calicoPolicy) bool { return of(p) == nil })
	if len(all) == 0 {
		return false
	}
	for _, p := range all {
		d := of(p)
		if i := slices.IndexFunc(d.rules, rule.matchesAll); i >= 0 {
			d.rules = d.rules[:i+1] // the rest is never asked
		}
	}
	last := all[len(all)-1]
	if d := of(last); d.final() && d.rules[len(d.rules)-1].action == antrea.Pass &&
		!slices.ContainsFunc(all, func(p *calicoPolicy) bool { return !last.covers(p) }) {
		passes = true // the end of the tier is never reached
	}
	if !passes {
		return true
	}
	for _, p := range slices.Backward(all) {
		d := of(p)
		for len(d.rules) > 0 && d.rules[len(d.rules)-1].action == antrea.Pass {
			d.rules = d.rules[:len(d.rules)-1]
		}
		if len(d.rules) > 0 {
			break
		}
	}
	return false
}

// parts returns the rules of a policy of a tier, and the end of the tier for its pods.
func (d *calicoDirection) parts(priority, end float64, denies bool) []part {
	if d == nil {
		return nil
	}
	all := []part{{priority: priority, rules: d.rules}}
	if denies && !d.final() {
		all = append(all, part{suffix: "-end", priority: end, rules: []rule{{action: antrea.Drop, any: true}}})
	}
	return all
}

// final reports whether the last rule matches everything.
func (d *calicoDirection) final() bool {
	return len(d.rules) > 0 && d.rules[len(d.rules)-1].matchesAll()
}

// passes reports whether a rule is a Pass.
func (d *calicoDirection) passes() bool {
	return d != nil && slices.ContainsFunc(d.rules, func(r rule) bool { return r.action == antrea.Pass })
}

// covers reports whether the policy certainly selects all pods that another one selects.
func (p *calicoPolicy) covers(o *calicoPolicy) bool {
	if p.namespace == o.namespace && reflect.DeepEqual(p.subjects, o.subjects) {
		return true
	}
	return (p.global || p.namespace == o.namespace) && slices.ContainsFunc(p.subjects, func(s selection) bool {
		return isEverything(s.pods) && (!p.global || isEverything(s.namespaces))
	})
}

// isEverything reports whether a selector selects all.
func isEverything(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}
