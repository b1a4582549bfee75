package felixlike

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
	err := d.ask(ctx, func() { m = d.model() })
	return m, err
}

// model runs in the loop. Between two calls of the loop everything is flushed.
func (d *Driver) model() control.Model {
	m := control.Model{
		Node: d.cfg.Node, Backend: d.backend.Name(), Revision: d.programmed,
		HostAddresses: slices.Clone(d.tracker.host.Addresses), ServiceCIDRs: slices.Clone(d.tracker.services.Prefixes),
		DenialsReported: d.tracker.denials.Reported,
		RatesUnbounded:  d.backend.Unbounded() != nil,
	}
	if d.cfg.Settings != nil {
		m.Settings = d.cfg.Settings()
	}
	for _, u := range d.engine.Snapshot() {
		m.Add(u)
	}
	// This node's own may be gone from the datastore, and stays in force.
	m.Nodes = nil
	for _, name := range slices.Sorted(maps.Keys(d.tracker.nodes)) {
		m.Nodes = append(m.Nodes, d.tracker.nodes[name])
	}
	var attached []*model.Attachment
	for _, id := range slices.SortedFunc(maps.Keys(d.tracker.attachments), model.PodID.Compare) {
		attached = append(attached, d.tracker.attachments[id])
	}
	m.Attachments = control.NewAttachments(attached)
	addresses := d.engine.PodAddresses()
	for _, id := range slices.SortedFunc(maps.Keys(addresses), model.PodID.Compare) {
		m.Pods = append(m.Pods, control.Pod{ID: id, Addresses: addresses[id]})
	}
	return m
}
