package policy

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// label is a key with its value.
type label struct{ key, value string }

// requirement is one condition on a label; values are sorted and distinct.
type requirement struct {
	key    string
	op     metav1.LabelSelectorOperator
	values []string
}

// selector is a label selector in canonical form: selectors that say the same
// with other words in another order have one text. The text is unambiguous,
// because keys and values are validated first.
type selector struct {
	requirements []requirement
	text         string
}

// everything is the text of the selector without requirements. No label key
// can be mistaken for it.
const everything = "*"

// compileSelector validates a selector and brings it into canonical form. Its
// errors carry paths that begin with the given one.
func compileSelector(s *metav1.LabelSelector, path string) (selector, field.ErrorList) {
	if errs := validation.ValidateLabelSelector(s, validation.LabelSelectorValidationOptions{}, field.NewPath(path)); len(errs) > 0 {
		return selector{}, errs
	}
	var all []requirement
	for k, v := range s.MatchLabels {
		all = append(all, requirement{key: k, op: metav1.LabelSelectorOpIn, values: []string{v}})
	}
	for _, e := range s.MatchExpressions {
		values := slices.Compact(slices.Sorted(slices.Values(e.Values)))
		all = append(all, requirement{key: e.Key, op: e.Operator, values: values})
	}
	slices.SortFunc(all, requirement.compare)
	all = slices.CompactFunc(all, func(a, b requirement) bool { return a.compare(b) == 0 })
	return newSelector(all), nil
}

func newSelector(requirements []requirement) selector {
	if len(requirements) == 0 {
		return selector{text: everything}
	}
	texts := make([]string, len(requirements))
	for i, r := range requirements {
		texts[i] = r.String()
	}
	return selector{requirements: requirements, text: strings.Join(texts, ",")}
}

func (r requirement) compare(o requirement) int {
	return cmp.Or(cmp.Compare(r.key, o.key), cmp.Compare(r.op, o.op), slices.Compare(r.values, o.values))
}

// String returns the requirement as kubectl takes it.
func (r requirement) String() string {
	switch r.op {
	case metav1.LabelSelectorOpIn:
		if len(r.values) == 1 {
			return r.key + "=" + r.values[0]
		}
		return r.key + " in (" + strings.Join(r.values, ",") + ")"
	case metav1.LabelSelectorOpNotIn:
		return r.key + " notin (" + strings.Join(r.values, ",") + ")"
	case metav1.LabelSelectorOpDoesNotExist:
		return "!" + r.key
	}
	return r.key
}

func (r requirement) matches(labels map[string]string) bool {
	v, ok := labels[r.key]
	switch r.op {
	case metav1.LabelSelectorOpIn:
		return ok && slices.Contains(r.values, v)
	case metav1.LabelSelectorOpNotIn:
		return !ok || !slices.Contains(r.values, v)
	case metav1.LabelSelectorOpExists:
		return ok
	case metav1.LabelSelectorOpDoesNotExist:
		return !ok
	}
	return false
}

// matches reports whether labels satisfy every requirement.
func (s selector) matches(labels map[string]string) bool {
	for _, r := range s.requirements {
		if !r.matches(labels) {
			return false
		}
	}
	return true
}

// required returns the labels of which whatever matches has exactly one, or
// nil if the selector requires none. Of several such requirements it takes
// the one with the fewest values.
func (s selector) required() []label {
	var best *requirement
	for i := range s.requirements {
		r := &s.requirements[i]
		if r.op == metav1.LabelSelectorOpIn && (best == nil || len(r.values) < len(best.values)) {
			best = r
		}
	}
	if best == nil {
		return nil
	}
	labels := make([]label, len(best.values))
	for i, v := range best.values {
		labels[i] = label{best.key, v}
	}
	return labels
}

// requiredKey returns a label key that whatever matches has, if the selector
// names one with Exists.
func (s selector) requiredKey() (string, bool) {
	for _, r := range s.requirements {
		if r.op == metav1.LabelSelectorOpExists {
			return r.key, true
		}
	}
	return "", false
}
