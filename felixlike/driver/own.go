package driver

import (
	"time"

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

// module returns the driver's own part of status, like a module's.
func (s *scheduler) module() Module {
	return Module{Notices: s.outages, Problems: s.problems, ObjectProblems: s.changed, Status: s.status, Measure: s.measure}
}

// Programmed returns the newest revision of the datastore that is programmed, and since when the next one waits.
func (s *scheduler) Programmed() (revision uint64, waits time.Time) {
	return s.programmed, s.oldestPending
}

// LastError returns why the last apply has failed, or "".
func (s *scheduler) LastError() string { return s.lastApply.Error }

// Large reports whether the object is a large policy.
func (s *scheduler) Large(o model.ObjectRef) bool { return s.admission.Large(o) }

func (s *scheduler) status(to *control.Status) {
	to.Backend, to.StartedAt, to.Programmed, to.LastApply, to.Repairs = s.stages.backend.Name(), s.stages.started, s.programmed, s.lastApply, s.stages.repairs.status()
	if h := s.stages.handover; h != nil {
		to.Handover = &control.Handover{To: h.to.Name(), Phase: h.phase().String(), Since: h.began}
		if h.err != nil {
			to.Handover.Error = h.err.Error()
		}
	}
	for _, r := range s.stages.runners {
		to.Writes[r.Name] = r.writes
		if r.flows > 0 {
			to.Flows[r.Name] = r.flows
		}
		if r.running {
			to.Running = append(to.Running, control.Running{Stage: r.Name, Since: r.started})
		}
	}
}

func (s *scheduler) measure(to *metrics.State) {
	for _, r := range s.stages.runners {
		to.Rules += r.rules
		to.Elements += r.elements
		to.Flows += r.flows
	}
}

// served adds what tools must know of the backend, after the settings.
func (s *scheduler) served(to *control.Model) {
	layout := s.stages.backend.Layout()
	to.Backend, to.Revision, to.RatesUnbounded, to.KeptInMaps = s.stages.backend.Name(), s.programmed, s.stages.backend.Unbounded() != nil, layout.Kept
	if layout.FellBack != nil {
		to.Settings.NFTablesLayout = config.LayoutRules
	}
}

// own returns a problem of this node.
func (s *scheduler) own(reason string) model.Problem {
	return model.Problem{Object: model.NodeRef(s.cluster.Node()), Reason: reason}
}

// outages returns the reasons why this node is not ready although everything is programmed.
func (s *scheduler) outages() []datastore.Notice {
	all := s.stages.leftovers.notices(s.cluster.Node())
	for _, r := range s.stages.runners {
		for _, reason := range r.unreadable {
			all = append(all, datastore.Notice{Problem: s.own(reason), Kind: noticeUnreadable})
		}
	}
	return all
}

// problems returns the policies that wait for their turn, and a missing rate limit: one pod can fill the table of connections.
func (s *scheduler) problems() []model.Problem {
	all := s.admission.Waiting()
	if err := s.stages.backend.Unbounded(); err != nil {
		all = append(all, s.own("the rate of new connections of pods has no limit: "+err.Error()))
	}
	return all
}

// changed says that the backend, or its layout, is not the wanted one.
func (s *scheduler) changed() (all []datastore.Notice) {
	if err := s.stages.backend.Layout().FellBack; err != nil {
		all = append(all, datastore.Notice{Kind: noticeFellBack, Problem: s.own("NetworkPolicies are in chains of rules, not in maps (nftables.layout), until the agent restarts: " + err.Error())})
	}
	if err := s.stages.unchanged; err != nil {
		all = append(all, datastore.Notice{Kind: noticeUnchanged, Problem: s.own(err.Error())})
	}
	return all
}
