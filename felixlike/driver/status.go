package driver

import (
	"fmt"
	"os"
	"slices"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/quarantine"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/model"
)

// reporter describes the state of the driver: for status, probes, metrics, notices, and
// for pods that wait. It belongs to the loop and changes nothing.
type reporter struct {
	cfg       *Config
	cluster   *cluster.Cluster
	stages    *stages
	scheduler *scheduler
	modules   modules
}

// status returns the current status. It runs in the loop.
func (rep *reporter) status() control.Status {
	view := rep.stages.quarantine.View()
	s := control.Status{
		Version: control.Version, AgentVersion: version.String(), Node: rep.cluster.Node(), Backend: rep.stages.backend.Name(),
		PID: os.Getpid(), StartedAt: rep.stages.started, InSync: rep.cluster.InSync(),
		Observed: rep.cluster.Observed(), Programmed: rep.scheduler.programmed, LastApply: rep.scheduler.lastApply,
		Writes: map[string]int{}, Flows: map[string]int{}, Problems: slices.Concat(rep.cluster.Problems(), rep.scheduler.admission.Waiting()),
		Quarantined: slices.Clone(view.Quarantined), Repairs: rep.stages.repairs.status(),
	}
	rep.modules.status(&s)
	if h := rep.stages.handover; h != nil {
		s.Handover = &control.Handover{To: h.to.Name(), Phase: h.phase().String(), Since: h.began}
		if h.err != nil {
			s.Handover.Error = h.err.Error()
		}
	}
	for _, r := range rep.stages.runners {
		s.Writes[r.Name] = r.writes
		if r.flows > 0 {
			s.Flows[r.Name] = r.flows
		}
		if r.running {
			s.Running = append(s.Running, control.Running{Stage: r.Name, Since: r.started})
		}
	}
	s.Problems = append(s.Problems, rep.cluster.OwnNodeProblems()...)
	s.Problems = append(s.Problems, rep.modules.problems()...)
	for _, o := range slices.Concat(rep.outages(), rep.objectProblems(), rep.cluster.Conflicts(true)) {
		s.Problems = append(s.Problems, o.Problem)
	}
	s.Problems = append(s.Problems, rep.unboundedProblems()...)
	s.Problems = append(s.Problems, rep.layoutProblems()...)
	s.Problems = append(s.Problems, rep.unchangedProblems()...)
	s.Problems = append(s.Problems, rep.quarantineProblems(view.Quarantined)...)
	cluster.SortProblems(s.Problems)
	rep.fill(&s, view.Closed)
	return s
}

// unboundedProblems reports a missing rate limit: one pod can fill the table of connections.
func (rep *reporter) unboundedProblems() []model.Problem {
	err := rep.stages.backend.Unbounded()
	if err == nil {
		return nil
	}
	return []model.Problem{{
		Object: model.NodeRef(rep.cluster.Node()), Reason: "the rate of new connections of pods has no limit: " + err.Error(),
	}}
}

// layoutProblems reports that the backend does not use the configured layout.
func (rep *reporter) layoutProblems() []model.Problem {
	err := rep.stages.backend.Layout().FellBack
	if err == nil {
		return nil
	}
	return []model.Problem{{
		Object: model.NodeRef(rep.cluster.Node()), Reason: "NetworkPolicies are in chains of rules, not in maps (nftables.layout), until the agent restarts: " + err.Error(),
	}}
}

// quarantineProblems names the policies that are not in force as written.
func (rep *reporter) quarantineProblems(quarantined []control.Quarantined) []model.Problem {
	var found []model.Problem
	for _, q := range quarantined {
		about := quarantine.Policies(q)
		if len(about) == 0 {
			about = []model.ObjectRef{{Kind: q.Stage + " " + q.Kind, Name: q.Name}}
		}
		for _, object := range about {
			found = append(found, model.Problem{Source: rep.cluster.Source(object), Object: object, Reason: quarantine.Reason(q)})
		}
	}
	return found
}

// podsReady reports whether the pods are attached, known, and programmed. A pod that a
// quarantined object closes is an error, because the object may stay quarantined.
func (rep *reporter) podsReady(pods []model.PodID) (bool, error) {
	closed := rep.stages.quarantine.View().Closed
	for _, id := range pods {
		state, reason := rep.cluster.Model().State(id, closed)
		if state == control.EndpointClosed && closed[id] != "" && rep.cluster.Model().Endpoints[id] != nil {
			return false, fmt.Errorf("pod %s is closed: %s", id, reason)
		}
		if state != control.EndpointProgrammed {
			return false, nil
		}
	}
	return true, nil
}

// unprogrammed returns why the policy of a pod is not in force, if it is not.
func (rep *reporter) unprogrammed(id model.PodID) string {
	switch state, reason := rep.cluster.Model().State(id, rep.stages.quarantine.View().Closed); {
	case state == control.EndpointProgrammed:
		return ""
	case state == control.EndpointClosed:
		return reason
	case rep.scheduler.lastApply.Error != "":
		return "programming the dataplane failed: " + rep.scheduler.lastApply.Error
	}
	return "its policy is still being programmed"
}
