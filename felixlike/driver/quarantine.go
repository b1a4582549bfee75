package driver

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

// quarantine knows what the stages have quarantined, and what comes of it.
type quarantine struct {
	model *cluster.Model
	// refused has the objects of each stage.
	refused map[string][]tables.Refusal
	// seen is nil if it has to be made anew.
	seen *quarantineView
}

// quarantineView is what was quarantined as people see it.
type quarantineView struct {
	quarantined []control.Quarantined
	// closed has the reason why a pod is closed, if it is.
	closed map[model.PodID]string
}

func newQuarantine(t *cluster.Model) *quarantine {
	return &quarantine{model: t, refused: map[string][]tables.Refusal{}, seen: &quarantineView{}}
}

// set takes all that a stage has quarantined now, and logs what is new in it.
func (q *quarantine) set(log *slog.Logger, stage string, refused []tables.Refusal) {
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
		c := q.view().of(stage, r)
		log.Error("an object is quarantined: the pods that rely on it are closed, all else is programmed",
			"object", objectOf(c), "owners", texts(c.Owners, model.ObjectRef.String), "reason", c.Reason,
			"pods", len(c.Pods), "retry", r.NextTry)
	}
	for _, b := range before {
		if !slices.ContainsFunc(refused, func(r tables.Refusal) bool { return b.SameObject(r) }) {
			log.Info("an object is not quarantined any more", "object", b.Object+" "+b.Name, "attempts", b.Attempts)
		}
	}
}

// forget drops what a removed stage had quarantined.
func (q *quarantine) forget(stage string) {
	delete(q.refused, stage)
	q.seen = nil
}

// modelChanged says that other pods or policies may be concerned now.
func (q *quarantine) modelChanged() {
	for _, refused := range q.refused {
		if len(refused) > 0 {
			q.seen = nil
		}
	}
}

// view returns what was quarantined as people see it.
func (q *quarantine) view() *quarantineView {
	if q.seen == nil {
		q.seen = q.look()
	}
	return q.seen
}

func (q *quarantine) look() *quarantineView {
	v := &quarantineView{closed: map[model.PodID]string{}}
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
				if v.closed[id] == "" {
					v.closed[id] = shortOwner(c) + " is quarantined: " + c.Reason
				}
			}
			v.quarantined = append(v.quarantined, c)
		}
	}
	slices.SortFunc(v.quarantined, func(a, b control.Quarantined) int {
		return strings.Compare(a.Stage+"\x00"+a.Kind+"\x00"+a.Name+"\x00"+a.Rule, b.Stage+"\x00"+b.Kind+"\x00"+b.Name+"\x00"+b.Rule)
	})
	return v
}

func (v *quarantineView) of(stage string, r tables.Refusal) control.Quarantined {
	for _, c := range v.quarantined {
		if c.Stage == stage && c.Kind == r.Object && c.Name == r.Name && c.Rule == r.Rule {
			return c
		}
	}
	return control.Quarantined{}
}

// objectOf names the object as the dataplane does.
func objectOf(q control.Quarantined) string {
	s := q.Kind + " " + q.Name
	if q.Rule != "" {
		s += " (" + q.Rule + ")"
	}
	return s
}

// shortOwner names a quarantined object by the policies it was made of, or
// else as the dataplane does.
func shortOwner(q control.Quarantined) string {
	if about := policiesAmong(q.Owners); len(about) > 0 {
		return strings.Join(texts(about, model.ObjectRef.String), ", ")
	}
	return objectOf(q)
}

// quarantineReason says what it means that an object is quarantined.
func quarantineReason(q control.Quarantined) string {
	of := ""
	if q.Description != "" {
		of = ", " + q.Description + ","
	}
	return fmt.Sprintf("%s %s%s is quarantined: %s; pods closed by it: %s", q.Stage, objectOf(q), of, q.Reason, some(q.Pods))
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
