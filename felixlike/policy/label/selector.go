package label

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

// Selector is a label selector in canonical form: selectors with the same requirements, in
// any order and notation, have the same text. The text is unambiguous, because keys and
// values are valid.
type Selector struct {
	requirements []requirement
	text         string
	refs         int
}

// everythingText is the text of the selector without requirements. It is no valid label
// key.
const everythingText = "*"

// Everything returns the selector that matches all labels.
func Everything() *Selector { return newSelector(nil) }

// IsEverything reports whether the selector has no requirements.
func (s *Selector) IsEverything() bool { return s.text == everythingText }

// String returns the text. Equal selectors have the same text.
func (s *Selector) String() string { return s.text }

// Compile validates a selector and returns its canonical form. The paths in its errors
// begin with path.
func Compile(s *metav1.LabelSelector, path string) (*Selector, field.ErrorList) {
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

func newSelector(requirements []requirement) *Selector {
	if len(requirements) == 0 {
		return &Selector{text: everythingText}
	}
	if len(requirements) == 1 {
		return &Selector{requirements: requirements, text: requirements[0].String()}
	}
	texts := make([]string, len(requirements))
	for i, r := range requirements {
		texts[i] = r.String()
	}
	return &Selector{requirements: requirements, text: strings.Join(texts, ",")}
}

func (r requirement) compare(o requirement) int {
	return cmp.Or(cmp.Compare(r.key, o.key), cmp.Compare(r.op, o.op), slices.Compare(r.values, o.values))
}

// String returns the requirement in the notation of kubectl.
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

func (r *requirement) matches(labels *Set) bool {
	v, ok := labels.Get(r.key)
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

// Matches reports whether the labels satisfy every requirement.
func (s *Selector) Matches(labels *Set) bool {
	for i := range s.requirements {
		if !s.requirements[i].matches(labels) {
			return false
		}
	}
	return true
}

// Selectors stores the selectors that are in use, by text.
type Selectors map[string]*Selector

// Hold counts a reference to a selector, and returns the stored one that equals it.
func (p Selectors) Hold(s *Selector) *Selector {
	if held := p[s.text]; held != nil {
		s = held
	} else {
		p[s.text] = s
	}
	s.refs++
	return s
}

// Release gives back a reference, and removes the selector with the last one.
func (p Selectors) Release(s *Selector) {
	s.refs--
	if s.refs == 0 {
		delete(p, s.text)
	}
}
