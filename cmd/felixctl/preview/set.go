package preview

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
)

// Named says how people name an end, and Ends those of a Question.
const (
	Named = `NAMESPACE/POD, namespace:NAME, namespaces:LABEL=VALUE, pods:LABEL=VALUE,
node:NAME, nodes, outside, an address or prefix outside`
	Ends = Named + ", or nothing for all of these"
)

// Set is the sources or destinations that a text names.
type Set struct {
	has func(*end) bool
	// These are those that it names.
	prefixes                []netip.Prefix
	selectors, ofNamespaces []labels.Selector
}

// Has reports whether an end is in the set.
func (s *Set) Has(e *End) bool { return s.has(e) }

// OfAddresses reports whether the set names addresses outside.
func (s *Set) OfAddresses() bool { return len(s.prefixes) > 0 }

// Or returns the ends of either set.
func (s *Set) Or(o *Set) *Set {
	return s.with(o, func(e *end) bool { return s.has(e) || o.has(e) })
}

// And returns the ends that are in both sets.
func (s *Set) And(o *Set) *Set {
	return s.with(o, func(e *end) bool { return s.has(e) && o.has(e) })
}

// Except returns the ends of s that are not in the other set.
func (s *Set) Except(o *Set) *Set {
	return s.with(o, func(e *end) bool { return s.has(e) && !o.has(e) })
}

func (s *Set) with(o *Set, has func(*end) bool) *Set {
	return &Set{
		has, slices.Concat(s.prefixes, o.prefixes), slices.Concat(s.selectors, o.selectors),
		slices.Concat(s.ofNamespaces, o.ofNamespaces),
	}
}

// set understands what Ends says. A pod in its host's network is its node.
func (v *verdicts) set(text string) (*Set, error) {
	if prefix, err := parsePrefix(text); err == nil {
		return &Set{has: func(e *end) bool { return e.addr.IsValid() && prefix.Contains(e.addr) }, prefixes: []netip.Prefix{prefix}}, nil
	}
	kind, value, _ := strings.Cut(text, ":")
	switch kind {
	case "":
		return &Set{has: func(*end) bool { return true }}, nil
	case "outside":
		return &Set{has: func(e *end) bool { return e.addr.IsValid() }}, nil
	case "nodes", "node":
		return &Set{has: func(e *end) bool {
			if len(e.pods) > 0 {
				return e.pods[0].Spec.HostNetwork && (kind == "nodes" || e.pods[0].Spec.NodeName == value)
			}
			return e.node != nil && (kind == "nodes" || e.node.Name == value)
		}}, nil
	case "namespace":
		return v.pods(func(p *corev1.Pod) bool { return p.Namespace == value }), nil
	case "namespaces", "pods":
		selector, err := labels.Parse(value)
		if err == nil && value == "" {
			err = errors.New("it is empty")
		}
		if err != nil {
			return nil, fmt.Errorf("%q: not a selector of labels: %w", text, err)
		}
		if kind == "pods" {
			s := v.pods(func(p *corev1.Pod) bool { return selector.Matches(labels.Set(p.Labels)) })
			s.selectors = []labels.Selector{selector}
			return s, nil
		}
		s := v.pods(func(p *corev1.Pod) bool {
			n := v.namespaces[p.Namespace]
			return n != nil && selector.Matches(namespaceLabels(n))
		})
		s.ofNamespaces = []labels.Selector{selector}
		return s, nil
	}
	id, err := control.ParsePod(text)
	if err != nil {
		return nil, fmt.Errorf("%q: must be %s", text, strings.ReplaceAll(Ends, "\n", " "))
	}
	return v.pods(func(p *corev1.Pod) bool { return p.Namespace == id.Namespace && p.Name == id.Name }), nil
}

// parsePrefix reads an address or a prefix.
func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	return compile.ParseCIDR(text)
}

// namespaceLabels are those of the namespace with the one that every namespace has.
func namespaceLabels(n *corev1.Namespace) labels.Set {
	return labels.Merge(labels.Set{corev1.LabelMetadataName: n.Name}, n.Labels)
}

// pods returns the set of these pods, and of the nodes that have one of them in their network.
func (v *verdicts) pods(is func(*corev1.Pod) bool) *Set {
	return &Set{has: func(e *end) bool {
		if len(e.pods) > 0 {
			return is(e.pods[0])
		}
		return e.node != nil && slices.ContainsFunc(v.objects.Pods, func(p *corev1.Pod) bool {
			return p.Spec.HostNetwork && p.Spec.NodeName == e.node.Name && is(p)
		})
	}}
}
