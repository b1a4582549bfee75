package egress

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/egress/status"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// statusWriters is how many nodes write the status of a pool, or of an Egress that no node has, one after the other.
const statusWriters = 3

// writeStatus writes the status of Egresses and pools until ctx ends.
func (e *Egress) writeStatus(ctx context.Context) error {
	o := status.DefaultOptions()
	o.Client, o.Log = e.API, e.Log
	o.Look = func(ctx context.Context) (all []status.Status, err error) {
		err = e.view.Do(ctx, func() { all = e.written() })
		return all, err
	}
	return status.Run(ctx, o)
}

// written returns the status of Egresses and pools that this node writes. It runs in the loop.
func (e *Egress) written() []status.Status {
	if !e.view.InSync() {
		return nil
	}
	reasons := map[model.ObjectRef][]string{}
	known := e.view.Policy().AntreaProblems()
	for _, n := range e.problems() {
		known = append(known, n.Problem)
	}
	for _, p := range slices.Concat(known, e.view.SourceProblems()) {
		reasons[p.Object] = append(reasons[p.Object], p.Field+": "+p.Reason)
	}
	own := antrea.ID{Kind: antrea.KindNodeEgress}.Ref().Kind
	var all []status.Status
	for _, at := range e.view.Policy().Egresses().Addresses() {
		if at.Object.Kind != own {
			continue
		}
		s := status.Status{Kind: antrea.KindNodeEgress, Name: at.Object.Name}
		switch {
		case at.Node == e.view.Node() && e.Addresses.Has(at.Address):
			s.Node, s.Address = at.Node, at.Address.String()
			s.Reason, s.Message = status.ReasonAssigned, fmt.Sprintf("node %s has the address", at.Node)
		case at.Node == e.view.Node():
			s.Reason, s.Message = status.ReasonNotOnInterface, strings.Join(append(reasons[at.Object], fmt.Sprintf("node %s has not added the address yet; the status of its agent names errors", at.Node)), "\n")
		case at.Node != "":
			continue // that node writes it
		default:
			reason := status.ReasonNoNode
			if p := at.Pool; p != nil && p.Allocated.IsValid() {
				s.Address = p.Allocated.String()
			} else if p != nil {
				reason = status.ReasonNoAddress
			}
			if s.Rank = e.rank(s.Name); s.Rank >= statusWriters {
				continue
			}
			s.Reason, s.Message = reason, strings.Join(reasons[at.Object], "\n")
		}
		all = append(all, s)
	}
	for _, p := range e.view.Policy().Egresses().PoolUsages() {
		s := status.Status{Kind: antrea.KindOwnExternalIPPool, Name: p.Name, Usage: status.Usage{Total: p.Total, Used: p.Used}, Rank: e.rank(p.Name)}
		if s.Rank < statusWriters {
			all = append(all, s)
		}
	}
	return all
}

// rank returns the place of this node among those that write the status of an object.
func (e *Egress) rank(object string) int {
	rank := 0
	for name := range e.view.Model().Nodes {
		if policy.Order(object, name) < policy.Order(object, e.view.Node()) {
			rank++
		}
	}
	return rank
}
