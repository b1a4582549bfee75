package managers

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// ways decides how packets travel between this node and its peers.
type ways struct {
	mode    model.TrafficMode
	subnets []netip.Prefix
}

// update takes a HostAddressesUpdate, and reports whether ways may have changed.
func (w *ways) update(u model.Update) bool {
	now, ok := u.(model.HostAddressesUpdate)
	if !ok || w.mode == model.Encap || slices.Equal(now.Subnets, w.subnets) {
		return false
	}
	w.subnets = slices.Clone(now.Subnets)
	return true
}

// of returns the families in which packets to a peer travel in one of the ways.
func (w *ways) of(self, peer *model.Node, accepted ...model.Way) []model.Family {
	var all []model.Family
	for _, f := range model.Families() {
		if slices.Contains(accepted, w.mode.Way(self, peer, w.subnets, f)) {
			all = append(all, f)
		}
	}
	return all
}

// unreached returns the problems of a peer whose pods have no way in some family.
func (w *ways) unreached(self, peer *model.Node) []model.Problem {
	var all []model.Problem
	for _, f := range w.of(self, peer, model.NoWay) {
		if self.PodCIDR(f).IsValid() && peer.PodCIDR(f).IsValid() {
			all = append(all, model.Problem{
				Object: model.ObjectRef{Kind: "Node", Name: peer.Name}, Field: "status.addresses",
				Reason: fmt.Sprintf("trafficMode %s: pods of this node do not reach its pods by IPv%s, because it or this node has no IPv%[2]s address", w.mode, f),
			})
		}
	}
	return all
}
