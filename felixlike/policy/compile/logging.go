package compile

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/felixlike/felixlike/model"
)

// logging sets Log and LogLabel of the rules as the annotations say. A value that it does not
// know is a problem, and then no rule logs.
func (c *compiler) logging(annotations map[string]string, p *model.Policy) {
	value, found := annotations[model.LogAnnotation]
	if !found {
		return
	}
	logs := c.logged(value, p.ID.Tier)
	if logs == nil {
		return
	}
	label := annotations[model.LogLabelAnnotation]
	if faults := validation.IsValidLabelValue(label); len(faults) > 0 {
		c.Add(annotationField(model.LogLabelAnnotation), "invalid label %q: %s; the lines have none", shown(label), strings.Join(faults, ", "))
		label = ""
	}
	for _, rules := range [...][]model.Rule{p.Ingress, p.Egress} {
		for i := range rules {
			if logs(rules[i].Action) {
				rules[i].Log, rules[i].LogLabel = true, label
			}
		}
	}
}

// logged returns a function that reports whether rules with an action log, as the value of
// model.LogAnnotation says; nil if none do.
func (c *compiler) logged(value string, t model.Tier) func(model.Action) bool {
	field := annotationField(model.LogAnnotation)
	switch value {
	case "true":
		return func(model.Action) bool { return true }
	case "false":
		return nil
	}
	allows, denies := false, false
	for word := range strings.SplitSeq(value, ",") {
		switch strings.TrimSpace(word) {
		case "allow":
			allows = true
		case "deny":
			denies = true
		default:
			c.Add(field, "unknown value %q: must be true, false, or a list of allow and deny; nothing is logged", shown(value))
			return nil
		}
	}
	if denies && t == model.TierNetworkPolicy {
		c.Add(field, "a NetworkPolicy has no rule that denies: only what it allows can be logged")
	}
	return func(a model.Action) bool { return a == model.Allow && allows || a.Denies() && denies }
}

// maxShown bounds, in bytes, what a problem repeats of a value.
const maxShown = 64

// shown returns the value, or its beginning if it is long.
func shown(value string) string {
	if len(value) <= maxShown {
		return value
	}
	return strings.ToValidUTF8(value[:maxShown-3], "") + "..."
}

func annotationField(name string) string { return "metadata.annotations[" + name + "]" }
