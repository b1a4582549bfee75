package driver

import (
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

// antreaProblems returns the engine's problems of the objects of Antrea's API, with their files.
func (c *cluster) antreaProblems() []model.Problem {
	all := c.engine.AntreaProblems()
	for i := range all {
		all[i].Source = c.antreaSources[all[i].Object]
	}
	return all
}

// moduleProblems returns the problems that modules have with users' objects, with their files.
func (c *cluster) moduleProblems() []model.Problem {
	all := c.modules.objectProblems()
	for i := range all {
		all[i].Source = c.antreaSources[all[i].Object]
	}
	return all
}

// nodeProblems returns what nodes claim and do not own, with their files.
func (c *cluster) nodeProblems() []model.Problem {
	all := slices.Clone(c.engine.NodeProblems())
	for i := range all {
		all[i].Source = c.nodeSources[all[i].Object.Name]
	}
	return all
}

func ref(kind, namespace, name string) model.ObjectRef {
	return model.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
}
