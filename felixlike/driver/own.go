package driver

import (
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/model"
)

// Reasons of Events about this node.
const (
	noticeFellBack   = "LayoutFellBack"
	noticeUnchanged  = "BackendUnchanged"
	noticeUnreadable = "TableUnreadable"
)

// own is what the driver says of itself: to status, metrics, tools and Events.
type own struct {
	cluster   *cluster.Cluster
	stages    *stages
	scheduler *scheduler
}

// module returns the driver's own part of status, like a module's.
func (v own) module() Module {
	return Module{Notices: v.outages, Problems: v.problems, ObjectProblems: v.changed, Status: v.status, Measure: v.measure}
}

// Programmed returns the newest revision of the datastore that is programmed, and since when the next one waits.
func (v own) Programmed() (revision uint64, waits time.Time) {
	return v.scheduler.programmed, v.scheduler.pace.oldestPending
}

// LastError returns why the last apply has failed, or "".
func (v own) LastError() string { return v.scheduler.pace.lastApply.Error }

// Large reports whether the object is a large policy.
func (v own) Large(o model.ObjectRef) bool { return v.scheduler.admission.Large(o) }

func (v own) status(to *control.Status) {
	to.Configured = v.stages.becoming.to
	to.Backend, to.StartedAt, to.Programmed, to.LastApply, to.Repairs = v.stages.backend.Name(), v.stages.started, v.scheduler.programmed, v.scheduler.pace.lastApply, v.stages.repairs.status()
	if l := v.stages.backend.Layout(); l.InForce != "" {
		to.Layout = &control.Layout{InForce: l.InForce}
		if u := l.Maps; u != nil {
			to.Layout.Grants, to.Layout.GrantsBound, to.Layout.Pods = u.Grants, u.Bound, u.Pods
		}
	}
	if h := v.stages.handover; h != nil {
		to.Handover = &control.Handover{To: h.to.Name(), Phase: h.phase().String(), Since: h.began}
		if h.err != nil {
			to.Handover.Error = h.err.Error()
		}
	}
	for _, r := range v.stages.runners {
		to.Writes[r.Name] = r.writes
		if r.flows > 0 {
			to.Flows[r.Name] = r.flows
		}
		if r.running {
			to.Running = append(to.Running, control.Running{Stage: r.Name, Since: r.started})
		}
	}
}

func (v own) measure(to *metrics.State) {
	for _, r := range v.stages.runners {
		to.Rules += r.rules
		to.Elements += r.elements
		to.Flows += r.flows
	}
}

// served adds what tools must know of the backend, after the settings.
func (v own) served(to *control.Model) {
	layout := v.stages.backend.Layout()
	to.Backend, to.Revision, to.RatesUnbounded, to.KeptInMaps = v.stages.backend.Name(), v.scheduler.programmed, v.stages.backend.Unbounded() != nil, layout.Kept
	if layout.FellBack != nil {
		to.Settings.NFTablesLayout = config.LayoutRules
	}
}

// problem returns a problem of this node.
func (v own) problem(reason string) model.Problem {
	return model.Problem{Object: model.NodeRef(v.cluster.Node()), Reason: reason}
}

// outages returns the reasons why this node is not ready although everything is programmed.
func (v own) outages() []datastore.Notice {
	all := slices.Concat(v.stages.leftovers.notices(v.cluster.Node()), v.stages.becoming.notices(v.cluster.Node(), v.stages.backend.Name(), v.scheduler.programmed > 0, v.stages.handover != nil))
	for _, r := range v.stages.runners {
		for _, reason := range r.unreadable {
			all = append(all, datastore.Notice{Problem: v.problem(reason), Kind: noticeUnreadable})
		}
	}
	return all
}

// problems returns the policies that wait for their turn, and a missing rate limit: one pod can fill the table of connections.
func (v own) problems() []model.Problem {
	all := v.scheduler.admission.Waiting()
	if err := v.stages.backend.Unbounded(); err != nil {
		all = append(all, v.problem("the rate of new connections of pods has no limit: "+err.Error()))
	}
	return all
}

// changed says that the backend, or its layout, is not the wanted one.
func (v own) changed() (all []datastore.Notice) {
	if err := v.stages.backend.Layout().FellBack; err != nil {
		all = append(all, datastore.Notice{Kind: noticeFellBack, Problem: v.problem("NetworkPolicies are in chains of rules, not in maps (nftables.layout), until the agent restarts: " + err.Error())})
	}
	if err := v.stages.unchanged; err != nil && v.stages.becoming.to == "" {
		all = append(all, datastore.Notice{Kind: noticeUnchanged, Problem: v.problem(err.Error())})
	}
	return all
}
