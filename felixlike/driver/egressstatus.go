package driver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/egressstatus"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// egressStatusWriters is how many nodes write the status of a pool, or of an Egress that no node has, one after the other.
const egressStatusWriters = 3

// EgressStatus returns the status of Egresses and pools that this node writes. has reports whether this node has an address.
func (d *Driver) EgressStatus(ctx context.Context, has func(netip.Addr) bool) (all []egressstatus.Status, err error) {
	err = d.queue.ask(ctx, func() { all = d.feed.egressStatus(has) })
	return all, err
}

// egressStatus returns the status of Egresses and pools that this node writes.
func (f *feed) egressStatus(has func(netip.Addr) bool) []egressstatus.Status {
	c := f.cluster
	if !c.inSync() {
		return nil
	}
	reasons := map[model.ObjectRef][]string{}
	for _, p := range slices.Concat(c.engine.AntreaProblems(), c.refusedProblems(), c.problems.source) {
		reasons[p.Object] = append(reasons[p.Object], p.Field+": "+p.Reason)
	}
	own := antrea.ID{Kind: antrea.KindNodeEgress}.Ref().Kind
	var all []egressstatus.Status
	for _, e := range f.egresses {
		if e.Object.Kind != own {
			continue
		}
		s := egressstatus.Status{Kind: antrea.KindNodeEgress, Name: e.Object.Name}
		switch {
		case e.Node == c.node && has(e.Address):
			s.Node, s.Address = e.Node, e.Address.String()
			s.Reason, s.Message = egressstatus.ReasonAssigned, fmt.Sprintf("node %s has the address", e.Node)
		case e.Node == c.node:
			s.Reason, s.Message = egressstatus.ReasonNotOnInterface, strings.Join(append(reasons[e.Object], fmt.Sprintf("node %s has not added the address yet; the status of its agent names errors", e.Node)), "\n")
		case e.Node != "":
			continue // that node writes it
		default:
			reason := egressstatus.ReasonNoNode
			if p := e.Pool; p != nil && p.Allocated.IsValid() {
				s.Address = p.Allocated.String()
			} else if p != nil {
				reason = egressstatus.ReasonNoAddress
			}
			if s.Rank = f.rank(s.Name); s.Rank >= egressStatusWriters {
				continue
			}
			s.Reason, s.Message = reason, strings.Join(reasons[e.Object], "\n")
		}
		all = append(all, s)
	}
	for _, p := range c.engine.PoolUsages() {
		s := egressstatus.Status{Kind: antrea.KindOwnExternalIPPool, Name: p.Name, Usage: egressstatus.Usage{Total: p.Total, Used: p.Used}, Rank: f.rank(p.Name)}
		if s.Rank < egressStatusWriters {
			all = append(all, s)
		}
	}
	return all
}

// rank returns the place of this node among those that write the status of an object.
func (f *feed) rank(object string) int {
	rank := 0
	for name := range f.cluster.model.Nodes {
		if policy.Order(object, name) < policy.Order(object, f.cluster.node) {
			rank++
		}
	}
	return rank
}
