package preview

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/felixlike/felixlike/model"
)

// Possible returns pods that could exist and be in a set: one of each kind that the policies between such a pod
// and the other ends distinguish. It has every set of labels, in each namespace and in each kind of namespace
// that could exist, and pod addresses in and out of each ipBlock. No other ends means that these are pods that could exist, too: then
// all policies count. If ctx ends before, Possible returns its error.
func (w *World) Possible(ctx context.Context, s *Set, others []*End, destination bool) (all []*End, err error) {
	namespaces, err := w.possibleNamespaces(s, destination && others == nil)
	if err != nil {
		return nil, err
	}
	made, own := 0, w.own()
	for _, n := range namespaces {
		w.namespaces[n.Name] = n
		policies := w.about(n.Name, others)
		if destination && slices.ContainsFunc(policies, anyPolicy.namesPorts) {
			return nil, errors.New("a policy names a port, and pods that could exist could give the name to any port: only pods that exist can be the destination")
		}
		selectors := slices.Clone(s.selectors)
		for _, p := range policies {
			selectors = append(selectors, w.decisions.traits[p].pods...)
		}
		sets, err := labelSets(selectors, "", nil)
		if err != nil {
			return nil, err
		}
		for _, addresses := range w.possibleAddresses(policies, own, destination) {
			for _, set := range sets {
				if made++; made > maxKinds {
					return nil, errTooMany
				}
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				if e := w.possiblePod(n, set, addresses, policies); s.has(e) {
					all = append(all, e)
				}
			}
		}
	}
	return all, nil
}

// possiblePod returns such a pod. It is always the same one, so that what policies decide about it stays known.
func (w *World) possiblePod(n *corev1.Namespace, set labels.Set, addresses []corev1.PodIP, policies []anyPolicy) *end {
	key := fmt.Sprint(n.Name, "\n", set, addresses)
	if w.possible[key] == nil {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n.Name, Name: "*", Labels: set}, Status: corev1.PodStatus{PodIPs: addresses}}
		e := &end{text: w.possibleText(n, set), pods: []*corev1.Pod{pod}}
		for _, p := range policies {
			if p.selects(pod, n) {
				e.policies[0] = append(e.policies[0], p)
			}
		}
		w.possible[key] = e
	}
	return w.possible[key]
}

// maxKinds bounds the kinds of pods, so that a test ends.
const maxKinds = 1 << 14

var errTooMany = fmt.Errorf("the policies distinguish more than %d kinds of pods that could exist: ask about fewer", maxKinds)

// possibleText names a pod that could exist.
func (w *World) possibleText(n *corev1.Namespace, set labels.Set) string {
	labelled := func(what string, set labels.Set) string {
		if len(set) == 0 {
			return what
		}
		return what + " labelled " + set.String()
	}
	if slices.Contains(w.objects.Namespaces, n) {
		return labelled("a pod of "+n.Name, set)
	}
	return labelled("a pod", set) + labelled(" of a namespace", n.Labels)
}

// about returns the policies that may judge packets between pods of a namespace and the others.
func (w *World) about(namespace string, others []*end) (all []anyPolicy) {
	for _, p := range w.policies {
		if p.network == nil || p.network.Namespace == namespace || others == nil ||
			slices.ContainsFunc(others, func(e *end) bool { return slices.Contains(e.policies[0], p) }) {
			all = append(all, p)
		}
	}
	return all
}

// possibleNamespaces returns the namespaces, and one of each other kind that the policies and the set distinguish. With second, there is
// another one of each kind, whose labels that nobody names have the same values or others.
func (w *World) possibleNamespaces(s *Set, second bool) ([]*corev1.Namespace, error) {
	var named []*metav1.LabelSelector
	var compared []string
	selectors := slices.Clone(s.ofNamespaces)
	for _, p := range w.policies {
		selectors = append(selectors, w.decisions.traits[p].namespaces...)
		compared = append(compared, sameLabels(p.antrea)...)
	}
	slices.Sort(compared)
	compared = slices.Compact(compared)
	for _, key := range compared {
		named = append(named, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}}})
		for _, n := range w.objects.Namespaces {
			if value, has := n.Labels[key]; has {
				named = append(named, &metav1.LabelSelector{MatchLabels: map[string]string{key: value}})
			}
		}
	}
	selectors = append(selectors, parsed(named)...)
	all := slices.Clone(w.objects.Namespaces)
	var exist []string
	for _, n := range all {
		exist = append(exist, n.Name)
	}
	add := func(name string, set labels.Set) {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name + set.String(), Labels: set}})
	}
	sets, err := labelSets(selectors, corev1.LabelMetadataName, exist)
	values := namedValues(selectors)
	for _, set := range sets {
		// Several may have the same name in that label: at most one of them can exist.
		add("*", set)
		name := set[corev1.LabelMetadataName]
		if !second || slices.Contains(values[corev1.LabelMetadataName], name) {
			continue
		}
		like := []labels.Set{labels.Merge(set, labels.Set{corev1.LabelMetadataName: otherThan(slices.Concat(values[corev1.LabelMetadataName], exist, []string{name}))})}
		for _, key := range compared {
			if value, has := set[key]; has && key != corev1.LabelMetadataName && !slices.Contains(values[key], value) {
				for _, o := range like {
					like = append(like, labels.Merge(o, labels.Set{key: otherThan(append(values[key], value))}))
				}
			}
		}
		for _, o := range like {
			add("**", o)
		}
	}
	return all, err
}

// parsed returns the selectors that can be understood. The others select the same whatever the labels.
func parsed(all []*metav1.LabelSelector) []labels.Selector {
	seen := map[string]bool{}
	var out []labels.Selector
	for _, s := range all {
		if selector, err := metav1.LabelSelectorAsSelector(s); err == nil && !seen[selector.String()] {
			seen[selector.String()] = true
			out = append(out, selector)
		}
	}
	return out
}

// labelSets returns sets of labels such that each possible set is selected by the same selectors as one of them. A
// label that is always there has none of the values that are taken.
func labelSets(selectors []labels.Selector, always string, taken []string) ([]labels.Set, error) {
	keys := namedValues(selectors)
	if always != "" && keys[always] == nil {
		keys[always] = nil
	}
	required := make([]labels.Requirements, len(selectors))
	for i, s := range selectors {
		required[i], _ = s.Requirements()
	}
	// A kind is a set of the keys so far, by the selectors that it does not exclude.
	type kind struct {
		set  labels.Set
		open string
	}
	kinds := []kind{{labels.Set{}, strings.Repeat("1", len(selectors))}}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		named := keys[key]
		var values []string
		for _, v := range append([]string{otherThan(slices.Concat(named, taken))}, named...) {
			if key != always || !slices.Contains(taken, v) {
				values = append(values, v)
			}
		}
		seen := map[string]bool{}
		var next []kind
		add := func(k kind, more labels.Set) {
			open := []byte(k.open)
			for i, all := range required {
				for _, r := range all {
					if open[i] == '1' && r.Key() == key && !r.Matches(more) {
						open[i] = '0'
					}
				}
			}
			if !seen[string(open)] {
				seen[string(open)] = true
				next = append(next, kind{labels.Merge(k.set, more), string(open)})
			}
		}
		for _, k := range kinds {
			if key != always {
				add(k, nil)
			}
			for _, v := range values {
				add(k, labels.Set{key: v})
			}
			if len(next) > maxKinds {
				return nil, errTooMany
			}
		}
		kinds = next
	}
	var sets []labels.Set
	for _, k := range kinds {
		sets = append(sets, k.set)
	}
	return sets, nil
}

// namedValues returns the values that selectors name, by key. Those of > and < are integers: beside such a bound, there is
// a value that is equal to it, one that is less and one that is greater, of which no selector names the text.
func namedValues(selectors []labels.Selector) map[string][]string {
	keys, bounds := map[string][]string{}, map[string][]int64{}
	for _, s := range selectors {
		required, _ := s.Requirements()
		for _, r := range required {
			keys[r.Key()] = append(keys[r.Key()], r.ValuesUnsorted()...)
			if o := r.Operator(); o == selection.GreaterThan || o == selection.LessThan {
				n, _ := strconv.ParseInt(r.ValuesUnsorted()[0], 10, 64) // the selector would not be one
				bounds[r.Key()] = append(bounds[r.Key()], n-1, n, n+1)
			}
		}
	}
	for key, all := range bounds {
		for _, n := range all {
			text := strconv.FormatInt(n, 10)
			for slices.Contains(keys[key], text) {
				text = "0" + text
			}
			if n >= 0 { // a label has no sign
				keys[key] = append(keys[key], text)
			}
		}
	}
	for key, all := range keys {
		slices.Sort(all)
		keys[key] = slices.Compact(all)
	}
	return keys
}

// otherThan returns a value that is none of these.
func otherThan(values []string) string {
	other := "other"
	for slices.Contains(values, other) {
		other += "-other"
	}
	return other
}

// possibleAddresses returns addresses that pods could get: one of each family in each part of the pod prefixes that
// the blocks of the policies distinguish. Those of sources and of destinations differ if the part has two.
func (w *World) possibleAddresses(policies []anyPolicy, own map[netip.Addr]bool, destination bool) (all [][]corev1.PodIP) {
	var byFamily [][]string
	rows := 0
	for _, f := range w.families {
		var addresses []string
		for _, root := range w.podPrefixes {
			if model.FamilyOf(root.Addr()) != f {
				continue
			}
			parts := []netip.Prefix{root}
			for _, b := range w.blocks(policies) {
				if b.Bits() > root.Bits() && root.Contains(b.Addr()) {
					parts = append(parts, b)
				}
			}
			for _, part := range parts {
				if a := free(part, children(part, parts), own, destination); a.IsValid() {
					addresses = append(addresses, a.String())
				}
			}
		}
		byFamily, rows = append(byFamily, addresses), max(rows, len(addresses))
	}
	// Policies judge each family by itself: each address has to occur, not each pair.
	all = make([][]corev1.PodIP, rows)
	for i := range rows {
		for _, addresses := range byFamily {
			if len(addresses) > 0 {
				all[i] = append(all[i], corev1.PodIP{IP: addresses[i%len(addresses)]})
			}
		}
	}
	return all
}

// own are the addresses of the pods, of the nodes and of the nodes' gateways.
func (w *World) own() map[netip.Addr]bool {
	own := w.taken().own
	for _, text := range nodeAddresses(w.objects.Nodes) {
		own[netip.MustParsePrefix(text).Addr()] = true
	}
	for _, p := range PodPrefixes(w.objects.Nodes) {
		own[p.Addr().Next()] = true // the gateway
	}
	return own
}
