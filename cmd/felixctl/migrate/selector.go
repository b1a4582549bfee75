package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxTerms bounds the alternatives of a selector. Each becomes a peer or an object of its own.
const maxTerms = 32

// maxSelector bounds the text of a selector, in bytes: the parser recurses.
const maxSelector = 64 << 10

// term is a list of requirements that all must hold. A selector is a list of terms, of which one must hold.
type term []metav1.LabelSelectorRequirement

// expression is a node of a parsed selector of Calico.
type expression struct {
	// kind is "and", "or", "all", or "label".
	kind string
	kids []*expression
	leaf metav1.LabelSelectorRequirement
	not  bool
}

// parseSelector parses a selector of Calico. The empty text selects everything.
// Grammar: https://docs.tigera.io/calico/latest/reference/resources/networkpolicy#selectors
func parseSelector(text string) (*expression, error) {
	if strings.TrimSpace(text) == "" {
		return &expression{kind: "all"}, nil
	}
	if len(text) > maxSelector {
		return nil, fmt.Errorf("a selector is longer than %d bytes", maxSelector)
	}
	tokens, err := tokenize(text)
	if err != nil {
		return nil, fmt.Errorf("selector %q: %w", text, err)
	}
	p := &selectorParser{tokens: tokens}
	e, err := p.or()
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("unexpected %q", p.peek())
	}
	if err != nil {
		return nil, fmt.Errorf("selector %q: %w", text, err)
	}
	return e, nil
}

// terms returns the alternatives of the expression, or of its negation. No term means that it selects nothing.
func (e *expression) terms(negate bool) ([]term, error) {
	negate = negate != e.not
	switch e.kind {
	case "all":
		if negate {
			return nil, nil
		}
		return []term{nil}, nil
	case "label":
		leaf := e.leaf
		if negate {
			leaf.Operator = opposite(leaf.Operator)
		}
		return []term{{leaf}}, nil
	}
	if (e.kind == "or") != negate {
		var all []term
		for _, kid := range e.kids {
			some, err := kid.terms(negate)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return bounded(all)
	}
	all := []term{nil}
	for _, kid := range e.kids {
		some, err := kid.terms(negate)
		if err != nil {
			return nil, err
		}
		var product []term
		for _, a := range all {
			for _, b := range some {
				product = append(product, slices.Concat(a, b))
			}
		}
		if all, err = bounded(product); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// replaceAll replaces each all() in the expression by a requirement.
func (e *expression) replaceAll(by metav1.LabelSelectorRequirement) {
	if e.kind == "all" {
		e.kind, e.leaf = "label", by
	}
	for _, kid := range e.kids {
		kid.replaceAll(by)
	}
}

func bounded(all []term) ([]term, error) {
	if len(all) > maxTerms {
		return nil, fmt.Errorf("more than %d alternatives", maxTerms)
	}
	return all, nil
}

func opposite(o metav1.LabelSelectorOperator) metav1.LabelSelectorOperator {
	switch o {
	case metav1.LabelSelectorOpIn:
		return metav1.LabelSelectorOpNotIn
	case metav1.LabelSelectorOpNotIn:
		return metav1.LabelSelectorOpIn
	case metav1.LabelSelectorOpExists:
		return metav1.LabelSelectorOpDoesNotExist
	}
	return metav1.LabelSelectorOpExists
}

// matches reports whether labels meet one of the terms.
func matches(terms []term, labels map[string]string) bool {
	return slices.ContainsFunc(terms, func(t term) bool {
		return !slices.ContainsFunc(t, func(r metav1.LabelSelectorRequirement) bool {
			value, has := labels[r.Key]
			switch r.Operator {
			case metav1.LabelSelectorOpIn:
				return !has || !slices.Contains(r.Values, value)
			case metav1.LabelSelectorOpNotIn:
				return has && slices.Contains(r.Values, value)
			case metav1.LabelSelectorOpExists:
				return !has
			}
			return has
		})
	})
}

// selector returns a term as a label selector.
func (t term) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for _, r := range t {
		if r.Operator == metav1.LabelSelectorOpIn && len(r.Values) == 1 && !hasKey(s.MatchLabels, r.Key) {
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[r.Key] = r.Values[0]
			continue
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

func hasKey(m map[string]string, key string) bool {
	_, has := m[key]
	return has
}

// selectorParser parses tokens: "!" binds more than "&&", and "&&" more than "||".
type selectorParser struct{ tokens []string }

func (p *selectorParser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *selectorParser) next() string {
	t := p.peek()
	if t != "" {
		p.tokens = p.tokens[1:]
	}
	return t
}

// accept takes the tokens if they come next.
func (p *selectorParser) accept(tokens ...string) bool {
	if len(p.tokens) < len(tokens) || !slices.Equal(p.tokens[:len(tokens)], tokens) {
		return false
	}
	p.tokens = p.tokens[len(tokens):]
	return true
}

func (p *selectorParser) list(kind, operator string, operand func() (*expression, error)) (*expression, error) {
	e := &expression{kind: kind}
	for {
		kid, err := operand()
		if err != nil {
			return nil, err
		}
		e.kids = append(e.kids, kid)
		if !p.accept(operator) {
			return e, nil
		}
	}
}

func (p *selectorParser) or() (*expression, error)  { return p.list("or", "||", p.and) }
func (p *selectorParser) and() (*expression, error) { return p.list("and", "&&", p.operand) }

func (p *selectorParser) operand() (*expression, error) {
	switch {
	case p.accept("!"):
		e, err := p.operand()
		if err != nil {
			return nil, err
		}
		return &expression{kind: "and", kids: []*expression{e}, not: true}, nil
	case p.accept("("):
		e, err := p.or()
		if err == nil && !p.accept(")") {
			err = errors.New("a closing parenthesis is missing")
		}
		return e, err
	case p.accept("all", "(", ")"):
		return &expression{kind: "all"}, nil
	case p.accept("global", "(", ")"):
		return nil, errors.New("global() selects no pods")
	case p.accept("has", "("):
		key := p.next()
		if !isName(key) || !p.accept(")") {
			return nil, errors.New("has() needs the name of a label")
		}
		return leaf(key, metav1.LabelSelectorOpExists), nil
	}
	return p.comparison()
}

func (p *selectorParser) comparison() (*expression, error) {
	key := p.next()
	if !isName(key) {
		return nil, fmt.Errorf("%q is no name of a label", key)
	}
	switch {
	case p.accept("=="):
		return p.value(key, metav1.LabelSelectorOpIn)
	case p.accept("!="):
		return p.value(key, metav1.LabelSelectorOpNotIn)
	case p.accept("in"):
		return p.set(key, metav1.LabelSelectorOpIn)
	case p.accept("not", "in"):
		return p.set(key, metav1.LabelSelectorOpNotIn)
	}
	return nil, fmt.Errorf("operator %q has no counterpart in a label selector", p.peek())
}

func (p *selectorParser) value(key string, o metav1.LabelSelectorOperator) (*expression, error) {
	value, is := quoted(p.next())
	if !is {
		return nil, fmt.Errorf("label %s is compared with no string", key)
	}
	return leaf(key, o, value), nil
}

func (p *selectorParser) set(key string, o metav1.LabelSelectorOperator) (*expression, error) {
	var values []string
	if !p.accept("{") {
		return nil, fmt.Errorf("label %s: a set in braces is missing", key)
	}
	for !p.accept("}") {
		value, is := quoted(p.next())
		if !is || !p.accept(",") && p.peek() != "}" {
			return nil, fmt.Errorf("label %s: the set is malformed", key)
		}
		values = append(values, value)
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("label %s: the set is empty", key)
	}
	return leaf(key, o, values...), nil
}

func leaf(key string, o metav1.LabelSelectorOperator, values ...string) *expression {
	return &expression{kind: "label", leaf: metav1.LabelSelectorRequirement{Key: key, Operator: o, Values: values}}
}

func quoted(token string) (string, bool) {
	if len(token) < 2 || token[0] != '\'' && token[0] != '"' {
		return "", false
	}
	return token[1 : len(token)-1], true
}

func isName(token string) bool { return token != "" && isNameByte(token[0]) }

func isNameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("_./-", b) >= 0
}

// tokenize splits a selector. A string keeps its quotes.
func tokenize(text string) ([]string, error) {
	var tokens []string
	for i := 0; i < len(text); {
		b := text[i]
		end := i + 1
		switch {
		case b == ' ' || b == '\t' || b == '\n' || b == '\r':
			i = end
			continue
		case b == '\'' || b == '"':
			closing := strings.IndexByte(text[end:], b)
			if closing < 0 {
				return nil, errors.New("a closing quote is missing")
			}
			end += closing + 1
		case isNameByte(b):
			for end < len(text) && isNameByte(text[end]) {
				end++
			}
		case strings.HasPrefix(text[i:], "=="), strings.HasPrefix(text[i:], "!="), strings.HasPrefix(text[i:], "&&"), strings.HasPrefix(text[i:], "||"):
			end++
		case strings.IndexByte("!(){},", b) < 0:
			return nil, fmt.Errorf("unexpected %q", b)
		}
		tokens = append(tokens, text[i:end])
		i = end
	}
	return tokens, nil
}
