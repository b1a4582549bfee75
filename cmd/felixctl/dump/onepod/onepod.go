// Package onepod finds the part of a node's state that judges the packets of one pod: `felixctl
// dump --pod`. It begins at the chains that dispatch addresses and follows the chains from there,
// without the rules and entries that are for other pods. Of the bridge it takes the flows of the
// judging tables that the pod's packets can match.
//
// It reads a state and a model, and does no I/O. Tests use listings in the tools' own language.
package onepod

import (
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// Of returns the part of the state for a pod of the model's node.
func Of(s *dump.State, m *control.Model, id model.PodID) (*dump.State, error) {
	i := slices.IndexFunc(m.Attachments, func(a control.Attachment) bool { return a.Pod == id })
	if i < 0 {
		return nil, fmt.Errorf("pod %s has no interface on node %s", id, m.Node)
	}
	a := m.Attachments[i]
	out := &dump.State{}
	used := map[string]bool{}
	for _, t := range s.Tables {
		w := &walk{from: t, shared: s.IPSets, addresses: a.Addresses, used: used, seen: map[string]bool{}}
		if part := w.table(); len(part.Chains)+len(part.Sets) > 0 {
			out.Tables = append(out.Tables, part)
		}
	}
	for _, set := range s.IPSets {
		if used[set.Name] {
			out.IPSets = append(out.IPSets, set)
		}
	}
	out.Flows = flows(s.Flows, a)
	return out, nil
}
