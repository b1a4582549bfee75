package cluster

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// problems collects the problems of objects: those of the datastore, which sends its whole
// list each time, and those that the policy engine returns when it takes an object.
type problems struct {
	source []model.Problem
	engine map[model.ObjectRef][]model.Problem
}

func newProblems() *problems {
	return &problems{engine: map[model.ObjectRef][]model.Problem{}}
}

// SetProblems replaces the policy engine's problems of an object from this source.
func (c *Cluster) SetProblems(of model.ObjectRef, source string, found []model.Problem) {
	c.problems.setObject(of, source, found)
}

// SourceProblems returns the problems that the datastore has with objects.
func (c *Cluster) SourceProblems() []model.Problem { return c.problems.source }

// setObject replaces the engine's problems of an object from this source.
func (p *problems) setObject(ref model.ObjectRef, source string, found []model.Problem) {
	if len(found) == 0 {
		delete(p.engine, ref)
		return
	}
	named := make([]model.Problem, len(found))
	for i, f := range found {
		f.Source = source
		named[i] = f
	}
	p.engine[ref] = named
}

// all returns every problem, unsorted, and never nil.
func (p *problems) all() []model.Problem {
	all := append([]model.Problem{}, p.source...)
	for _, found := range p.engine {
		all = append(all, found...)
	}
	return all
}

func ref(kind, namespace, name string) model.ObjectRef {
	return model.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
}

// SortProblems orders problems by source, object and field.
func SortProblems(problems []model.Problem) {
	slices.SortFunc(problems, func(a, b model.Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), a.Object.Compare(b.Object),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
}

// firstOfEach returns one problem of each object, the first in the order of
// reasons.
func firstOfEach(problems []model.Problem) []model.Problem {
	SortProblems(problems)
	return slices.CompactFunc(problems, func(a, b model.Problem) bool { return a.Object == b.Object })
}
