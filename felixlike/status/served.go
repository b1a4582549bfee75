package status

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// Model returns the model that tools get. It runs in the loop. Between two calls of the loop, the engine is always flushed.
func (rep *Reporter) Model() control.Model {
	m := control.Model{
		Node:          rep.Cluster.Node(),
		HostAddresses: slices.Clone(rep.Cluster.Model().Host.Addresses), ServiceCIDRs: slices.Clone(rep.Cluster.Model().Services.Prefixes),
		Subnets:         slices.Clone(rep.Cluster.Model().Host.Subnets),
		DenialsReported: rep.Cluster.Model().Denials.Reported,
		LogsReported:    rep.Cluster.Model().Logs.Reported,
	}
	if h := rep.Cluster.Model().Hops; h != nil {
		m.HopsKnown, m.Hops = true, slices.Clone(h.Hops)
	}
	rep.Parts.Served(&m)
	for _, u := range rep.Cluster.Engine().Snapshot() {
		m.Add(u)
	}
	// This node's own object may be gone from the datastore; the last one stays in force.
	m.Nodes = nil
	for _, name := range slices.Sorted(maps.Keys(rep.Cluster.Model().Nodes)) {
		m.Nodes = append(m.Nodes, rep.Cluster.Model().Nodes[name])
	}
	var attached []*model.Attachment
	for _, id := range slices.SortedFunc(maps.Keys(rep.Cluster.Model().Attachments), model.PodID.Compare) {
		attached = append(attached, rep.Cluster.Model().Attachments[id])
	}
	m.Attachments = control.NewAttachments(attached)
	addresses := rep.Cluster.Engine().PodAddresses()
	for _, id := range slices.SortedFunc(maps.Keys(addresses), model.PodID.Compare) {
		m.Pods = append(m.Pods, control.Pod{ID: id, Addresses: addresses[id]})
	}
	return m
}
