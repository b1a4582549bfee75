package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// Filter chooses the pods, policies and faults that Status prints. The summary is that of the
// whole node. The zero value chooses all.
type Filter struct {
	// Namespace leaves out pods, policies and faults that do not concern it.
	Namespace string
	// Pod, a namespace/name, leaves out all other pods, and the list of policies.
	Pod string
	// Faults leaves out everything that is right.
	Faults bool
	// Strict takes a problem of an object for a fault of the node. It chooses nothing.
	Strict bool
}

// Apply returns the status with the chosen parts.
func (f Filter) Apply(s control.Status) control.Status {
	if f.Strict = false; f == (Filter{}) {
		return s
	}
	pod := func(namespace, name string) bool {
		return (f.Namespace == "" || f.Namespace == namespace) && (f.Pod == "" || f.Pod == namespace+"/"+name)
	}
	s.Endpoints = chosen(s.Endpoints, func(e control.Endpoint) bool {
		return pod(e.Namespace, e.Name) && (!f.Faults || e.State != control.EndpointProgrammed)
	})
	s.Policies = chosen(s.Policies, func(p control.Policy) bool {
		return f.Pod == "" && !f.Faults && (f.Namespace == "" || f.Namespace == p.Namespace)
	})
	s.Quarantined = chosen(s.Quarantined, func(q control.Quarantined) bool {
		for _, closed := range q.Pods {
			if namespace, name, _ := strings.Cut(closed, "/"); pod(namespace, name) {
				return true
			}
		}
		for _, o := range q.Owners {
			if f.Pod == "" && o.Namespace == f.Namespace || o.Kind == "Pod" && pod(o.Namespace, o.Name) {
				return true
			}
		}
		return f.Namespace == "" && f.Pod == ""
	})
	s.Problems = slices.Clone(s.Problems)
	s.Problems = slices.DeleteFunc(s.Problems, func(p model.Problem) bool {
		if f.Pod != "" {
			return p.Object.Kind != "Pod" || !pod(p.Object.Namespace, p.Object.Name)
		}
		return f.Namespace != "" && f.Namespace != p.Object.Namespace
	})
	if f.Namespace != "" || f.Pod != "" {
		s.Repairs = control.Repairs{} // they have no namespace
	}
	return s
}

// chosen returns the rows that pass, and does not change the slice.
func chosen[T any](all []T, pass func(T) bool) []T {
	var some []T
	for _, one := range all {
		if pass(one) {
			some = append(some, one)
		}
	}
	return some
}

// names are the pods, a namespace/name each.
func names(s control.Status) []string {
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, e.Namespace+"/"+e.Name)
	}
	return all
}

// verdict prints whether the node is ready, and the reasons if not.
func (t *text) verdict(s control.Status, ready bool) {
	var faults, notes []string
	add := func(to *[]string, n int, one, more string) {
		switch {
		case n == 1:
			*to = append(*to, "1 "+one)
		case n > 1:
			*to = append(*to, fmt.Sprintf("%d %s", n, more))
		}
	}
	if !s.InSync {
		faults = append(faults, "the first listing of the datastore is not complete")
	}
	if s.LastApply.Error != "" {
		faults = append(faults, "the last apply failed")
	}
	if s.Programmed < s.Observed {
		faults = append(faults, "a change is not programmed yet")
	}
	faults = append(faults, outages(s)...)
	add(&faults, len(s.Quarantined), "object is quarantined", "objects are quarantined")
	closed := len(chosen(s.Endpoints, func(e control.Endpoint) bool { return e.State == control.EndpointClosed }))
	add(&notes, closed, "pod is closed", "pods are closed")
	add(&notes, len(s.Problems), "problem of objects", "problems of objects")
	word := t.style.Good("Ready")
	if !ready {
		word = t.style.Bad("Degraded")
	}
	var counted []string
	add(&counted, len(s.Endpoints), "pod", "pods")
	add(&counted, len(s.Policies), "policy", "policies")
	if len(counted) == 0 {
		counted = []string{"no pods"}
	}
	parts := append(append(faults, notes...), strings.Join(counted, ", "))
	fmt.Fprintf(t, "%s: %s\n", word, strings.Join(parts, "; "))
}

// state paints the state of a pod.
func (t *text) state(state string) string {
	switch state {
	case control.EndpointProgrammed:
		return t.style.Good(state)
	case control.EndpointClosed:
		return t.style.Bad(state)
	}
	return state
}

// Formats are the formats that Status can print.
func Formats() []terminal.Output {
	return []terminal.Output{terminal.Text, terminal.Wide, terminal.Name, terminal.JSON, terminal.YAML}
}
