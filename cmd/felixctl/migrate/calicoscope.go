package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// calicoScope is where selectors of a policy select: in its namespace, or in all for a GlobalNetworkPolicy.
type calicoScope struct{ namespace string }

// termsOf returns the alternatives of a selector without those that another one selects.
func termsOf(selector, not string) ([]term, error) {
	e, err := parseSelector(selector)
	if err != nil {
		return nil, err
	}
	if not != "" {
		n, err := parseSelector(not)
		if err != nil {
			return nil, err
		}
		e = &expression{kind: "and", kids: []*expression{e, {kind: "and", kids: []*expression{n}, not: true}}}
	}
	return e.terms(false)
}

// selections returns the pods that the selectors select.
func (s calicoScope) selections(selector, not, namespaces string) ([]selection, error) {
	pods, err := termsOf(selector, not)
	if err != nil {
		return nil, err
	}
	spaces, err := termsOf(namespaces, "")
	if err != nil {
		return nil, err
	}
	if len(pods)*len(spaces) > maxTerms {
		return nil, fmt.Errorf("more than %d alternatives", maxTerms)
	}
	var all []selection
	for _, pod := range pods {
		for _, space := range spaces {
			one, err := s.selection(pod, space, s.namespace != "" && strings.TrimSpace(namespaces) == "")
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// selection returns the pods of one alternative. own: only those of the policy's namespace.
func (s calicoScope) selection(pod, space term, own bool) (selection, error) {
	var labels, namespaces term
	for _, r := range space {
		if r.Key == calicoName {
			r.Key = kubernetesName
		} else if strings.HasPrefix(r.Key, "projectcalico.org/") {
			return selection{}, fmt.Errorf("label %s has no counterpart", r.Key)
		}
		namespaces = append(namespaces, r)
	}
	for _, r := range pod {
		name, ofNamespace := strings.CutPrefix(r.Key, calicoNamespacePrefix)
		switch {
		case r.Key == calicoNamespace, ofNamespace && name == calicoName:
			r.Key = kubernetesName
			namespaces = append(namespaces, r)
		case ofNamespace:
			r.Key = name
			namespaces = append(namespaces, r)
		case strings.HasPrefix(r.Key, "projectcalico.org/"), strings.HasPrefix(r.Key, "pcsa."):
			return selection{}, fmt.Errorf("label %s has no counterpart", r.Key)
		default:
			labels = append(labels, r)
		}
	}
	out := selection{pods: labels.selector()}
	switch {
	case own && len(namespaces) > 0:
		return selection{}, errors.New("a selector of namespaces inside the namespace of the policy has no counterpart")
	case !own:
		out.namespaces = namespaces.selector()
	}
	return out, nil
}

// sets returns the sets of networks that the selectors select.
func (s calicoScope) sets(all []calicoSet, selector, not, namespaces string) ([]calicoSet, error) {
	global := isGlobal(namespaces)
	if global {
		namespaces = ""
	}
	labels, err := termsOf(selector, not)
	if err != nil {
		return nil, err
	}
	e, err := parseSelector(namespaces)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(namespaces) != "" {
		// all() means all namespaces. Another selector is one of labels pcns.LABEL, which a global set has not: "!has(LABEL)" selects it too.
		e.replaceAll(leaf(calicoNamespace, metav1.LabelSelectorOpExists).leaf)
	}
	spaces, err := e.terms(false)
	if err != nil {
		return nil, err
	}
	var found []calicoSet
	for _, set := range all {
		switch {
		case global && set.namespace != "":
			continue
		case !global && namespaces == "" && s.namespace != "" && set.namespace != s.namespace:
			continue
		}
		if set.namespace != "" {
			// The labels of namespaces are not in the input.
			if key := unknownKey(labels, func(k string) bool { return strings.HasPrefix(k, calicoNamespacePrefix) }); key != "" {
				return nil, fmt.Errorf("whether label %s selects NetworkSet %s/%s is not known", key, set.namespace, set.name)
			}
			if key := unknownKey(spaces, func(k string) bool { return k != calicoName && k != kubernetesName && k != calicoNamespace }); key != "" {
				return nil, fmt.Errorf("whether label %s of namespaces selects NetworkSet %s/%s is not known", key, set.namespace, set.name)
			}
		}
		name := map[string]string{}
		if set.namespace != "" {
			name = map[string]string{calicoName: set.namespace, kubernetesName: set.namespace, calicoNamespace: set.namespace}
		}
		if !matches(labels, set.labels) || !matches(spaces, name) {
			continue
		}
		if set.incomplete {
			return nil, fmt.Errorf("it selects the set of networks %s, a part of which has no counterpart", set.name)
		}
		found = append(found, set)
	}
	return found, nil
}

// unknownKey returns the first key of the terms that the function reports, or "".
func unknownKey(terms []term, unknown func(string) bool) string {
	for _, t := range terms {
		if i := slices.IndexFunc(t, func(r metav1.LabelSelectorRequirement) bool { return unknown(r.Key) }); i >= 0 {
			return t[i].Key
		}
	}
	return ""
}
