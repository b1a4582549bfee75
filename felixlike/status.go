package felixlike

import (
	"os"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/model"
)

// status describes the moment. It runs in the loop.
func (d *Driver) status() control.Status {
	view := d.quarantine.view()
	s := control.Status{
		Version: control.Version, AgentVersion: version.String(), Node: d.cfg.Node, Backend: d.backend.Name(), Datastore: d.cfg.Datastore,
		PID: os.Getpid(), StartedAt: d.started, InSync: d.inSync(),
		Observed: d.observed, Programmed: d.programmed, LastApply: d.lastApply,
		Writes: map[string]int{}, Flows: map[string]int{}, Problems: append(d.problems.all(), d.engine.Collisions()...),
		Quarantined: slices.Clone(view.quarantined), Repairs: d.repairs.status(),
	}
	if d.cfg.HealthAddress != nil {
		s.Health = d.cfg.HealthAddress()
	}
	if d.cfg.Underlay != nil {
		u := d.cfg.Underlay()
		s.Underlay = &u
	}
	if h := d.handover; h != nil {
		s.Handover = &control.Handover{To: h.to.Name(), Phase: h.phase().String(), Since: h.began}
		if h.err != nil {
			s.Handover.Error = h.err.Error()
		}
	}
	for _, r := range d.runners {
		s.Writes[r.Name] = r.writes
		if r.flows > 0 {
			s.Flows[r.Name] = r.flows
		}
		if r.running {
			s.Running = append(s.Running, control.Running{Stage: r.Name, Since: r.started})
		}
	}
	s.Problems = append(s.Problems, d.ownNodeProblems()...)
	if d.cfg.NodeProblems != nil {
		s.Problems = append(s.Problems, d.cfg.NodeProblems()...)
	}
	s.Problems = append(s.Problems, d.hostNetworkProblems()...)
	s.Problems = append(s.Problems, d.portProblems()...)
	s.Problems = append(s.Problems, d.priorityProblems()...)
	s.Problems = append(s.Problems, d.peerProblems()...)
	s.Problems = append(s.Problems, d.unboundedProblems()...)
	s.Problems = append(s.Problems, d.quarantineProblems(view.quarantined)...)
	sortProblems(s.Problems)
	d.tracker.fill(&s, view.closed)
	return s
}

// ownNodeProblems tells what comes of it that this node's object is missing.
func (d *Driver) ownNodeProblems() []model.Problem {
	reason := ""
	switch {
	case d.nodeLost:
		reason = "this node is not in the datastore any more: what was known of it stays in force"
	case d.sourceSynced && d.tracker.nodes[d.cfg.Node] == nil:
		reason = "this node is not in the datastore: nothing is programmed before it is"
	default:
		return nil
	}
	return []model.Problem{{Object: ref("Node", "", d.cfg.Node), Reason: reason}}
}

// unboundedProblems reports a missing rate limit: one pod can fill the table of connections.
func (d *Driver) unboundedProblems() []model.Problem {
	err := d.backend.Unbounded()
	if err == nil {
		return nil
	}
	return []model.Problem{{
		Object: ref("Node", "", d.cfg.Node), Reason: "the rate of new connections of pods has no limit: " + err.Error(),
	}}
}

// quarantineProblems names the policies that are not in force as written.
func (d *Driver) quarantineProblems(quarantined []control.Quarantined) []model.Problem {
	var found []model.Problem
	for _, q := range quarantined {
		about := policiesAmong(q.Owners)
		if len(about) == 0 {
			about = []model.ObjectRef{ref(q.Stage+" "+q.Kind, "", q.Name)}
		}
		for _, object := range about {
			found = append(found, model.Problem{Source: d.policies[object], Object: object, Reason: quarantineReason(q)})
		}
	}
	return found
}
