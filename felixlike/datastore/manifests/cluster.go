package manifests

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// value is the version of an object that is in force. For a policy that cannot be read
// it is the closed replacement.
type value struct {
	object metav1.Object
	closed bool
	// source is the file that the object is in.
	source string
	// selector is that of the stand-in.
	selector *metav1.LabelSelector
	// version is nil if the object is not as it was read.
	version *version
}

// event returns the event that puts the value in force.
func (v value) event(k key) datastore.Event {
	if v.closed {
		return datastore.NetworkPolicyClosed{Namespace: k.namespace, Name: k.name, PodSelector: v.selector}
	}
	switch o := v.object.(type) {
	case *corev1.Node:
		return datastore.NodeSet{Node: o, Source: v.source}
	case *corev1.Namespace:
		return datastore.NamespaceSet{Namespace: o, Source: v.source}
	case *corev1.Pod:
		return datastore.PodSet{Pod: o, Source: v.source}
	case antrea.Object:
		return datastore.AntreaSet{Object: o, Source: v.source}
	case *v1alpha2.ClusterNetworkPolicy:
		return datastore.ClusterNetworkPolicySet{Policy: o, Source: v.source}
	case *corev1.Service:
		return datastore.ServiceSet{Service: o, Source: v.source}
	case *discoveryv1.EndpointSlice:
		return datastore.EndpointSliceSet{Slice: o, Source: v.source}
	}
	return datastore.NetworkPolicySet{Policy: v.object.(*networkingv1.NetworkPolicy), Source: v.source}
}

// cluster is all that is in force.
type cluster map[key]value

// combine puts the files, sorted by name, together. An object with an error
// keeps the version that is in force before, if there is a good one.
func combine(files []*file, before cluster) (cluster, []model.Problem) {
	after := cluster{}
	owner := map[key]string{}
	var problems []model.Problem
	for _, f := range files {
		problems = append(problems, f.problems()...)
		for _, e := range f.content.entries {
			if first, taken := owner[e.key]; taken {
				problems = append(problems, model.Problem{
					Source: f.name, Object: e.key.ref(), Reason: "also defined in " + first + ": that one is in force",
				})
				continue
			}
			owner[e.key] = f.name
			v, outcome := e.value(before)
			if v != (value{}) {
				v.source = f.name
				after[e.key] = v
			}
			for _, p := range e.problems {
				p.Reason += "; " + outcome
				problems = append(problems, p)
			}
		}
	}
	after.addNamespaces()
	sortProblems(problems)
	return after, problems
}

// value returns the object of an entry that is in force and, if the entry has an error, the effect of it.
func (e *entry) value(before cluster) (value, string) {
	if e.object != nil {
		return value{object: e.object, version: e.version}, ""
	}
	if old, exists := before[e.key]; exists && !old.closed && !isSynthetic(old.object) && !isStandIn(old.object) {
		return old, "the last good version" + old.version.since() + " stays in force"
	}
	if e.closed != nil {
		return value{object: e.closed}, "fails closed"
	}
	if e.staged {
		return value{}, "left out: it is staged, and no connection is evaluated by it"
	}
	if e.key.kind != kindNetworkPolicy {
		return value{}, "left out"
	}
	if e.selector == nil {
		return value{closed: true}, "closed: every pod of the namespace is isolated"
	}
	return value{closed: true, selector: e.selector}, "closed: the pods it selects are isolated"
}

// addNamespaces adds those that are used but not declared.
func (c cluster) addNamespaces() {
	for _, k := range slices.Collect(maps.Keys(c)) {
		if !k.kind.namespaced() {
			continue
		}
		ns := key{kind: kindNamespace, name: k.namespace}
		if _, declared := c[ns]; declared {
			continue
		}
		namespace := &corev1.Namespace{}
		namespace.Name = k.namespace
		defaultNamespace(namespace)
		c[ns] = value{object: namespace}
	}
}

// isSynthetic reports whether an object is a namespace that addNamespaces
// made: objects that were read have a kind.
func isSynthetic(object metav1.Object) bool {
	namespace, ok := object.(*corev1.Namespace)
	return ok && namespace.Kind == ""
}

// isStandIn reports whether an object is the closed remainder of a ClusterNetworkPolicy or of an object
// of Antrea's API with an error: objects that were read have a kind.
func isStandIn(object metav1.Object) bool {
	switch o := object.(type) {
	case *v1alpha2.ClusterNetworkPolicy:
		return o.Kind == ""
	case *antrea.Tier:
		return o.Kind == ""
	case *antrea.ClusterGroup:
		return o.Kind == ""
	case *antrea.Group:
		return o.Kind == ""
	case *antrea.ClusterNetworkPolicy:
		return o.Kind == ""
	case *antrea.NetworkPolicy:
		return o.Kind == ""
	case *antrea.ExternalIPPool:
		return o.Kind == ""
	case *antrea.OwnExternalIPPool:
		return o.Kind == ""
	case *antrea.Egress:
		return o.Kind == ""
	case *antrea.NodeEgress:
		return o.Kind == ""
	}
	return false
}

// changes returns the events that lead from one cluster to the next.
func changes(before, after cluster) []datastore.Event {
	var events []datastore.Event
	for _, k := range slices.SortedFunc(maps.Keys(after), key.compare) {
		old, existed := before[k]
		if v := after[k]; !existed || !v.equal(old) {
			events = append(events, v.event(k))
		}
	}
	gone := slices.SortedFunc(maps.Keys(before), key.compare)
	slices.Reverse(gone)
	for _, k := range gone {
		if _, exists := after[k]; !exists {
			events = append(events, k.deleted())
		}
	}
	return events
}

func (v value) equal(o value) bool {
	v.version, o.version = nil, nil
	return v == o || reflect.DeepEqual(v, o)
}

func sortProblems(problems []model.Problem) {
	slices.SortStableFunc(problems, func(a, b model.Problem) int {
		if c := strings.Compare(a.Source, b.Source); c != 0 {
			return c
		}
		if c := a.Object.Compare(b.Object); c != 0 {
			return c
		}
		return strings.Compare(a.Field, b.Field)
	})
}
