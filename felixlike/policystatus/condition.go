package policystatus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/datastore/strict"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// ConditionAccepted is the type of the condition. True: all rules are in force as written, or would be if the policy were not staged.
// False: a part of the policy is not understood and fails closed, or no policy is in force.
const ConditionAccepted = "felixlike.io/Accepted"

// Reasons of the condition.
const (
	// ReasonAccepted: there is nothing to say.
	ReasonAccepted = "Accepted"
	// ReasonStaged: accepted, and not enforced.
	ReasonStaged = "Staged"
	// ReasonEqualPriority: accepted, and another policy has the same tier and priority.
	ReasonEqualPriority = "EqualPriority"
	// ReasonNotUnderstood: a part fails closed; the Event has the same reason.
	ReasonNotUnderstood = "NotUnderstood"
	// ReasonNotInForce: the agents have a setting with which no policy is in force.
	ReasonNotInForce = "NotInForce"
)

const (
	// maxLines and maxLine bound a message: lines, and bytes of each. The API server
	// takes 32,768 bytes.
	maxLines = 20
	maxLine  = 1000
)

// judged is a policy as the agents read it.
type judged struct {
	object *unstructured.Unstructured
	// id and priority are those by which it is evaluated.
	id       model.PolicyID
	priority float64
	problems []model.Problem
	staged   bool
	// faults are the fields that this version does not know.
	faults []strict.Fault
}

// judge reads the spec of a policy as the agents do.
func judge(o *unstructured.Unstructured) (judged, error) {
	fields := map[string]any{}
	for name, value := range o.Object {
		if name != "metadata" && name != "status" {
			fields[name] = value
		}
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return judged{}, fmt.Errorf("ClusterNetworkPolicy %s: %w", o.GetName(), err)
	}
	p := &v1alpha2.ClusterNetworkPolicy{}
	faults := strict.Decode(data, p)
	if len(faults) > 0 {
		p = &v1alpha2.ClusterNetworkPolicy{Spec: strict.ClosedSpec(data)}
	}
	p.Name, p.Annotations = o.GetName(), o.GetAnnotations()
	compiled, problems := compile.ClusterNetworkPolicy(p, compile.GroupIDHash)
	return judged{
		object: o, id: compiled.Model.ID, priority: compiled.Model.Precedence.Priority, problems: problems, staged: compiled.Staged, faults: faults,
	}, nil
}

// compare orders policies as the agents evaluate them.
func (j judged) compare(o judged) int {
	return cmp.Or(
		cmp.Compare(j.id.Tier, o.id.Tier), cmp.Compare(j.priority, o.priority),
		strings.Compare(j.id.Name, o.id.Name),
	)
}

// condition returns the condition that the policy must have, without its time. before is the
// policy that is evaluated directly before it, nil for the first one.
func (j judged) condition(before *judged) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionAccepted, Status: metav1.ConditionTrue, Reason: ReasonAccepted,
		ObservedGeneration: j.object.GetGeneration(), Message: "all rules are in force as written",
	}
	var lines []string
	if j.staged {
		c.Reason = ReasonStaged
		lines = append(lines, "it is staged (annotation "+model.EnforceAnnotation+"): no rule is enforced")
	}
	if before != nil && before.id.Tier == j.id.Tier && before.priority == j.priority {
		c.Reason = ReasonEqualPriority
		lines = append(lines, fmt.Sprintf("spec.priority: %v is also the priority of %s in tier %s; for pods that are subjects of both, %s is evaluated first, because of its name",
			j.priority, before.id.Name, tierName(j.id.Tier), before.id.Name))
	}
	if problems := j.faulty(); len(problems) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, ReasonNotUnderstood
		lines = append(problems, lines...)
	}
	if len(lines) > 0 {
		c.Message = message(lines)
	}
	return c
}

// notInForce returns the condition that the policy must have with a setting with which no policy is in force.
func (j judged) notInForce(variant string) metav1.Condition {
	return metav1.Condition{
		Type: ConditionAccepted, Status: metav1.ConditionFalse, Reason: ReasonNotInForce, ObservedGeneration: j.object.GetGeneration(),
		Message: "it is not in force with " + variant + ": the pods that it selects are closed",
	}
}

// faulty returns the parts that the agent does not understand, a line each.
func (j judged) faulty() []string {
	var lines []string
	for _, f := range j.faults {
		lines = append(lines, line(f.Field, f.Reason+"; fails closed"))
	}
	for _, p := range j.problems {
		lines = append(lines, line(p.Field, p.Reason))
	}
	return lines
}

func line(field, reason string) string {
	if field != "" {
		reason = field + ": " + reason
	}
	if len(reason) > maxLine {
		reason = strings.ToValidUTF8(reason[:maxLine-3], "") + "..."
	}
	return reason
}

// message joins lines, and says how many it leaves out.
func message(lines []string) string {
	if left := len(lines) - maxLines; left > 0 {
		lines = append(slices.Clone(lines[:maxLines]), fmt.Sprintf("and %d more", left))
	}
	return strings.Join(lines, "\n")
}

// tierName returns a tier as the API spells it.
func tierName(t model.Tier) v1alpha2.Tier {
	if t == model.TierBaseline {
		return v1alpha2.BaselineTier
	}
	return v1alpha2.AdminTier
}

// present returns our condition of a policy, if it has one.
func present(o *unstructured.Unstructured) (metav1.Condition, bool) {
	all, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return metav1.Condition{}, false
	}
	for _, c := range all {
		fields, ok := c.(map[string]any)
		if !ok || fields["type"] != ConditionAccepted {
			continue
		}
		data, err := json.Marshal(fields)
		var found metav1.Condition
		if err == nil && json.Unmarshal(data, &found) == nil {
			return found, true
		}
	}
	return metav1.Condition{}, false
}

// same reports whether two conditions say the same, whenever they began to.
func same(a, b metav1.Condition) bool {
	a.LastTransitionTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
	return a == b
}
