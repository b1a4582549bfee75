package policy

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
	refs         int
}

// everything is the text of the selector without requirements. No label key
// can be mistaken for it.
const everything = "*"

// compileSelector validates a selector and brings it into canonical form. Its
// errors carry paths that begin with the given one.
func compileSelector(s *metav1.LabelSelector, path string) (*selector, field.ErrorList) {
	if errs := validation.ValidateLabelSelector(s, validation.LabelSelectorValidationOptions{}, field.NewPath(path)); len(errs) > 0 {
		return nil, errs
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

func newSelector(requirements []requirement) *selector {
	if len(requirements) == 0 {
		return &selector{text: everything}
	}
	if len(requirements) == 1 {
		return &selector{requirements: requirements, text: requirements[0].String()}
	}
	texts := make([]string, len(requirements))
	for i, r := range requirements {
		texts[i] = r.String()
	}
	return &selector{requirements: requirements, text: strings.Join(texts, ",")}
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

func (r *requirement) matches(labels *labelSet) bool {
	v, ok := labels.get(r.key)
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
func (s *selector) matches(labels *labelSet) bool {
	for i := range s.requirements {
		if !s.requirements[i].matches(labels) {
			return false
		}
	}
	return true
}

// selectors holds the selectors that anything refers to; equal ones are one.
type selectors map[string]*selector

// hold counts a reference to a selector, and returns the one to use.
func (p selectors) hold(s *selector) *selector {
	if held := p[s.text]; held != nil {
		s = held
	} else {
		p[s.text] = s
	}
	s.refs++
	return s
}

func (p selectors) release(s *selector) {
	s.refs--
	if s.refs == 0 {
		delete(p, s.text)
	}
}
