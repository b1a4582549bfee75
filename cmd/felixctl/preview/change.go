package preview

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// Change is policies to be created or replaced, and policies to be deleted.
type Change struct {
	Set    []*networkingv1.NetworkPolicy
	Delete []model.PodID
}

// Kinds of a PolicyChange.
const (
	Created = "created"
	Changed = "changed"
	Deleted = "deleted"
	Same    = "unchanged"
)

// PolicyChange is what would become of one policy.
type PolicyChange struct {
	Policy string `json:"policy"`
	// What is Created, Changed, Deleted or Same.
	What string `json:"what"`
	// Pods are those that it selects, or selected.
	Pods []string `json:"pods"`
	// Ingress and Egress tell which directions it is about.
	Ingress bool `json:"ingress"`
	Egress  bool `json:"egress"`
	// Problems say what of it cannot be put into effect, and what people may not
	// expect of it.
	Problems []string `json:"problems,omitempty"`

	before, after *networkingv1.NetworkPolicy
}

func nameOf(p *networkingv1.NetworkPolicy) model.PodID {
	return model.PodID{Namespace: p.Namespace, Name: p.Name}
}

func comparePolicies(a, b *networkingv1.NetworkPolicy) int { return nameOf(a).Compare(nameOf(b)) }

// apply returns the policies as they would be, and what becomes of each. It fails
// for what is not there to be deleted, and for what is named twice.
func (c Change) apply(now []*networkingv1.NetworkPolicy) ([]*networkingv1.NetworkPolicy, []PolicyChange, error) {
	after := map[model.PodID]*networkingv1.NetworkPolicy{}
	for _, p := range now {
		after[nameOf(p)] = p
	}
	touched := map[model.PodID]*PolicyChange{}
	var errs []error
	touch := func(id model.PodID) *PolicyChange {
		if touched[id] != nil {
			errs = append(errs, fmt.Errorf("NetworkPolicy %s: named twice", id))
		}
		touched[id] = &PolicyChange{Policy: id.String(), before: after[id]}
		return touched[id]
	}
	for _, id := range c.Delete {
		if touch(id).before == nil {
			errs = append(errs, fmt.Errorf("NetworkPolicy %s: there is none to delete", id))
		}
		touched[id].What = Deleted
		delete(after, id)
	}
	for _, p := range c.Set {
		t := touch(nameOf(p))
		t.after, after[nameOf(p)] = p, p
		switch {
		case t.before == nil:
			t.What = Created
		case equality.Semantic.DeepEqual(t.before.Spec, p.Spec):
			t.What = Same
		default:
			t.What = Changed
		}
	}
	var changes []PolicyChange
	for _, id := range slices.SortedFunc(maps.Keys(touched), model.PodID.Compare) {
		changes = append(changes, *touched[id])
	}
	return slices.SortedFunc(maps.Values(after), comparePolicies), changes, errors.Join(errs...)
}

// describe fills in what a policy is about, and what is to be known of it.
func (c *PolicyChange) describe(o control.Objects, e *policy.Engine) {
	p := cmp.Or(c.after, c.before)
	c.Ingress, c.Egress = about(p, networkingv1.PolicyTypeIngress), about(p, networkingv1.PolicyTypeEgress)
	for _, pod := range o.Pods {
		if selectable(pod) && (selects(c.before, pod) || selects(c.after, pod)) {
			c.Pods = append(c.Pods, podName(pod))
		}
	}
	if c.after == nil {
		return
	}
	for _, problem := range e.SetNetworkPolicy(c.after) {
		text := problem.Reason
		if problem.Field != "" {
			text = problem.Field + ": " + text
		}
		c.Problems = append(c.Problems, text)
	}
	if len(c.Pods) == 0 {
		c.Problems = append(c.Problems, "it selects no pod that is there now")
	}
	for _, id := range e.HostNetworkTargets(p.Namespace, p.Name) {
		c.Problems = append(c.Problems, fmt.Sprintf("it selects %s, which is in its host's network, so that no policy applies to it", id))
	}
	if !slices.ContainsFunc(o.Namespaces, func(n metaNamespace) bool { return n.Name == p.Namespace }) {
		c.Problems = append(c.Problems, fmt.Sprintf("there is no namespace %q", p.Namespace))
	}
}

// about reports whether the policy isolates in the direction; by default it does
// for ingress, and for egress if it has such rules.
func about(p *networkingv1.NetworkPolicy, t networkingv1.PolicyType) bool {
	types := p.Spec.PolicyTypes
	if len(types) == 0 {
		return t == networkingv1.PolicyTypeIngress || len(p.Spec.Egress) > 0
	}
	return slices.Contains(types, t)
}

// selects reports whether a policy may apply to a pod. One that cannot be
// understood applies to its whole namespace, as the oracle has it.
func selects(p *networkingv1.NetworkPolicy, pod metav1.Object) bool {
	if p == nil || p.Namespace != pod.GetNamespace() {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	return err != nil || s.Matches(labels.Set(pod.GetLabels()))
}
