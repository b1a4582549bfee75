package driver

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/quarantine"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/model"
)

// reporter describes the state of the driver: for status, probes, metrics, notices, and
// for pods that wait. It belongs to the loop and changes nothing.
type reporter struct {
	cluster    *cluster.Cluster
	quarantine *quarantine.List
	progress   progress
	grace      time.Duration
	// modules has the driver's own part too.
	modules modules
}

// progress says how far the dataplane is.
type progress interface {
	// Programmed returns the newest revision of the datastore that is programmed, and since when the next one waits; zero if none does.
	Programmed() (revision uint64, waits time.Time)
	// LastError returns why the last apply has failed, or "".
	LastError() string
	// Large reports whether the object is a large policy, which only the nodes know where it applies.
	Large(o model.ObjectRef) bool
}

// status returns the current status. It runs in the loop.
func (rep *reporter) status() control.Status {
	view := rep.quarantine.View()
	s := control.Status{
		Version: control.Version, AgentVersion: version.String(), Node: rep.cluster.Node(), PID: os.Getpid(), InSync: rep.cluster.InSync(), Observed: rep.cluster.Observed(),
		Writes: map[string]int{}, Flows: map[string]int{}, Quarantined: slices.Clone(view.Quarantined),
		Problems: slices.Concat(rep.cluster.Problems(), rep.cluster.OwnNodeProblems(), rep.modules.problems(), rep.quarantineProblems(view.Quarantined)),
	}
	rep.modules.status(&s)
	for _, o := range slices.Concat(rep.modules.notices(), rep.objectProblems(), rep.cluster.Conflicts(true)) {
		s.Problems = append(s.Problems, o.Problem)
	}
	cluster.SortProblems(s.Problems)
	rep.fill(&s, view.Closed)
	return s
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
	closed := rep.quarantine.View().Closed
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
	switch state, reason := rep.cluster.Model().State(id, rep.quarantine.View().Closed); {
	case state == control.EndpointProgrammed:
		return ""
	case state == control.EndpointClosed:
		return reason
	case rep.progress.LastError() != "":
		return "programming the dataplane failed: " + rep.progress.LastError()
	}
	return "its policy is still being programmed"
}

// objectProblems returns the problems that modules have with users' objects, with their files.
func (rep *reporter) objectProblems() []datastore.Notice {
	all := rep.modules.objectProblems()
	for i := range all {
		if source := rep.cluster.Source(all[i].Object); source != "" {
			all[i].Source = source
		}
	}
	return all
}
