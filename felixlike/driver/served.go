package driver

import (
	"context"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// Model implements control.Agent.
func (d *Driver) Model(ctx context.Context) (control.Model, error) {
	var m control.Model
	err := d.queue.ask(ctx, func() { m = d.reporter.model() })
	return m, err
}

// model runs in the loop. Between two calls of the loop, the engine is always flushed.
func (rep *reporter) model() control.Model {
	m := control.Model{
		Node:          rep.cluster.Node(),
		HostAddresses: slices.Clone(rep.cluster.Model().Host.Addresses), ServiceCIDRs: slices.Clone(rep.cluster.Model().Services.Prefixes),
		Subnets:         slices.Clone(rep.cluster.Model().Host.Subnets),
		DenialsReported: rep.cluster.Model().Denials.Reported,
		LogsReported:    rep.cluster.Model().Logs.Reported,
	}
	if h := rep.cluster.Model().Hops; h != nil {
		m.HopsKnown, m.Hops = true, slices.Clone(h.Hops)
	}
	rep.modules.served(&m)
	for _, u := range rep.cluster.Engine().Snapshot() {
		m.Add(u)
	}
	// This node's own object may be gone from the datastore; the last one stays in force.
	m.Nodes = nil
	for _, name := range slices.Sorted(maps.Keys(rep.cluster.Model().Nodes)) {
		m.Nodes = append(m.Nodes, rep.cluster.Model().Nodes[name])
	}
	var attached []*model.Attachment
	for _, id := range slices.SortedFunc(maps.Keys(rep.cluster.Model().Attachments), model.PodID.Compare) {
		attached = append(attached, rep.cluster.Model().Attachments[id])
	}
	m.Attachments = control.NewAttachments(attached)
	addresses := rep.cluster.Engine().PodAddresses()
	for _, id := range slices.SortedFunc(maps.Keys(addresses), model.PodID.Compare) {
		m.Pods = append(m.Pods, control.Pod{ID: id, Addresses: addresses[id]})
	}
	return m
}
