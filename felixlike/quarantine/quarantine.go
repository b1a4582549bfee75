// Package quarantine has what the stages of an agent have quarantined, and whom that concerns: the policies and pods that an object of the
// dataplane is made of, and the pods that it closes. docs/design/quarantine.md has the states of such objects.
package quarantine

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// List knows what the stages have quarantined, and what comes of it.
type List struct {
	model *cluster.Model
	// refused has the objects of each stage.
	refused map[string][]tables.Refusal
	// seen is nil if it has to be made anew.
	seen *View
}

// View is what was quarantined as people see it.
type View struct {
	// Quarantined has the objects, in the order of their stages and names.
	Quarantined []control.Quarantined
	// Closed has the reason why a pod is closed, if it is.
	Closed map[model.PodID]string
}

// New returns a List in which nothing is quarantined.
func New(t *cluster.Model) *List {
	return &List{model: t, refused: map[string][]tables.Refusal{}, seen: &View{}}
}

// Set takes all that a stage has quarantined now, and logs what is new in it.
func (q *List) Set(log *slog.Logger, stage string, refused []tables.Refusal) {
	before := q.refused[stage]
	if len(before) == 0 && len(refused) == 0 {
		return
	}
	q.refused[stage] = refused
	q.seen = nil
	log = log.With("stage", stage)
	for _, r := range refused {
		i := slices.IndexFunc(before, func(b tables.Refusal) bool { return b.SameObject(r) })
		if i >= 0 && before[i].Reason == r.Reason && slices.Equal(before[i].Closed, r.Closed) {
			continue
		}
		c := q.View().of(stage, r)
		log.Error("an object is quarantined: the pods that rely on it are closed, all else is programmed",
			"object", Object(c), "owners", names(c.Owners), "reason", c.Reason,
			"pods", len(c.Pods), "retry", r.NextTry)
	}
	for _, b := range before {
		if !slices.ContainsFunc(refused, func(r tables.Refusal) bool { return b.SameObject(r) }) {
			log.Info("an object is not quarantined any more", "object", b.Object+" "+b.Name, "attempts", b.Attempts)
		}
	}
}

// Of returns what a stage has quarantined.
func (q *List) Of(stage string) []tables.Refusal { return q.refused[stage] }

// Forget drops what a removed stage had quarantined.
func (q *List) Forget(stage string) {
	delete(q.refused, stage)
	q.seen = nil
}

// ModelChanged says that other pods or policies may be concerned now.
func (q *List) ModelChanged() {
	for _, refused := range q.refused {
		if len(refused) > 0 {
			q.seen = nil
		}
	}
}

// View returns what was quarantined as people see it.
func (q *List) View() *View {
	if q.seen == nil {
		q.seen = q.look()
	}
	return q.seen
}

func (q *List) look() *View {
	v := &View{Closed: map[model.PodID]string{}}
	concerned := newConcerned(q.model)
	for stage, refused := range q.refused {
		for _, r := range refused {
			c := control.Quarantined{
				Stage: stage, Kind: r.Object, Name: r.Name, Rule: r.Rule, Reason: r.Reason,
				Since: r.Since, Attempts: r.Attempts, NextTry: r.NextTry, Closed: slices.Clone(r.Closed),
			}
			c.Owners, c.Description = concerned.owners(r)
			for _, id := range concerned.closedBy(r) {
				c.Pods = append(c.Pods, id.String())
				if v.Closed[id] == "" {
					v.Closed[id] = shortOwner(c) + " is quarantined: " + c.Reason
				}
			}
			v.Quarantined = append(v.Quarantined, c)
		}
	}
	slices.SortFunc(v.Quarantined, func(a, b control.Quarantined) int {
		return strings.Compare(a.Stage+"\x00"+a.Kind+"\x00"+a.Name+"\x00"+a.Rule, b.Stage+"\x00"+b.Kind+"\x00"+b.Name+"\x00"+b.Rule)
	})
	return v
}

func (v *View) of(stage string, r tables.Refusal) control.Quarantined {
	for _, c := range v.Quarantined {
		if c.Stage == stage && c.Kind == r.Object && c.Name == r.Name && c.Rule == r.Rule {
			return c
		}
	}
	return control.Quarantined{}
}

// Object names the object as the dataplane does.
func Object(q control.Quarantined) string {
	s := q.Object()
	if q.Rule != "" {
		s += " (" + q.Rule + ")"
	}
	return s
}

// shortOwner names a quarantined object by the policies it was made of, or
// else as the dataplane does.
func shortOwner(q control.Quarantined) string {
	if about := Policies(q); len(about) > 0 {
		return strings.Join(names(about), ", ")
	}
	return Object(q)
}

// Policies returns the owners of a quarantined object that are no pods.
func Policies(q control.Quarantined) []model.ObjectRef {
	return slices.DeleteFunc(slices.Clone(q.Owners), func(r model.ObjectRef) bool { return r.Kind == "Pod" })
}

// Reason says what it means that an object is quarantined.
func Reason(q control.Quarantined) string {
	of := ""
	if q.Description != "" {
		of = ", " + q.Description + ","
	}
	return fmt.Sprintf("%s %s%s is quarantined: %s; pods closed by it: %s", q.Stage, Object(q), of, q.Reason, some(q.Pods))
}

func names(refs []model.ObjectRef) (all []string) {
	for _, r := range refs {
		all = append(all, r.String())
	}
	return all
}

// maxNamed bounds how many pods a sentence names.
const maxNamed = 5

func some(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxNamed:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}
