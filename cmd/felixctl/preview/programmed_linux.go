package preview

import (
	"fmt"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/control"
)

// nodeObjects are of the node's state.
type nodeObjects = []compare.Object

// Program adds the additions and removals of the model's node.
func (p *Preview) Program(o control.Objects, c Change, m control.Model) error {
	after, _, err := c.apply(o)
	if err != nil {
		return err
	}
	var s compare.Sides
	options := compare.Options{OnlyOurs: true, Elements: dump.Full}
	if s.Before, s.NoteBefore, _, err = side(o, policiesOf(o), m, options); err != nil {
		return err
	}
	if s.After, s.NoteAfter, p.Warnings, err = side(o, after, m, options); err != nil {
		return err
	}
	p.Backend, p.Programmed = m.Backend, append([]compare.Object{}, compare.Structure(s, options)...)
	return nil
}

// side returns the node's desired state with the policies, the function that names it, and the
// warnings about it.
func side(o control.Objects, policies []anyPolicy, like control.Model, options compare.Options) (*dump.State, func(any) string, []string, error) {
	e := engineOf(o, policies)
	for _, a := range like.Attachments {
		e.SetLocalAddresses(a.Pod, a.Addresses)
	}
	e.Flush()
	m := like
	m.Nodes, m.Groups, m.Policies, m.Endpoints, m.HostPolicies = nil, nil, nil, nil, nil
	for _, u := range e.Snapshot() {
		m.Add(u)
	}
	m.Nodes = like.Nodes
	state, err := wanted.Of(&m, "")
	if err != nil {
		return nil, nil, nil, fmt.Errorf("desired state of %s: %w", o.Node, err)
	}
	return compare.Canonical(state, options), names.Of(&m).Note, wanted.Warnings(&m, state), nil
}
