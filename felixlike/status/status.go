// Package status describes an agent: for felixctl status, probes, metrics, Events, tools that ask for its model, and pods that wait. It reads
// the cluster, the quarantine and what the driver and its modules say of themselves, and changes nothing.
package status

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/quarantine"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/model"
)

// Reporter describes the state of the driver. It belongs to the loop and changes nothing.
type Reporter struct {
	Cluster    *cluster.Cluster
	Quarantine *quarantine.List
	Progress   Progress
	// Parts are what the driver and its modules say of themselves.
	Parts Parts
	// Grace is how long a change may wait before the agent is not ready.
	Grace time.Duration
}

// Parts have what the reporter does not know itself. driver.Module says what each call is for.
type Parts interface {
	Notices() []datastore.Notice
	Problems() []model.Problem
	ObjectProblems() []datastore.Notice
	Closed() map[model.PodID]string
	Status(to *control.Status)
	Served(to *control.Model)
	Measure(to *metrics.State)
}

// Progress says how far the dataplane is.
type Progress interface {
	// Programmed returns the newest revision of the datastore that is programmed, and since when the next one waits; zero if none does.
	Programmed() (revision uint64, waits time.Time)
	// LastError returns why the last apply has failed, or "".
	LastError() string
	// Large reports whether the object is a large policy, which only the nodes know where it applies.
	Large(o model.ObjectRef) bool
}

// Status returns the current status. It runs in the loop.
func (rep *Reporter) Status() control.Status {
	view := rep.Quarantine.View()
	s := control.Status{
		Version: control.Version, AgentVersion: version.String(), Node: rep.Cluster.Node(), PID: os.Getpid(), InSync: rep.Cluster.InSync(), Observed: rep.Cluster.Observed(),
		Writes: map[string]int{}, Flows: map[string]int{}, Quarantined: slices.Clone(view.Quarantined),
		Problems: slices.Concat(rep.Cluster.Problems(), rep.Cluster.OwnNodeProblems(), rep.Parts.Problems(), rep.quarantineProblems(view.Quarantined)),
	}
	s.Unready = rep.unready()
	rep.Parts.Status(&s)
	for _, o := range slices.Concat(rep.Parts.Notices(), rep.objectProblems(), rep.Cluster.Conflicts(true)) {
		s.Problems = append(s.Problems, o.Problem)
	}
	cluster.SortProblems(s.Problems)
	rep.fill(&s, rep.closed(view))
	return s
}

// closed returns the pods that a quarantined object or a module keeps closed, each with the reason.
func (rep *Reporter) closed(view *quarantine.View) map[model.PodID]string {
	all := rep.Parts.Closed()
	maps.Copy(all, view.Closed)
	return all
}

// quarantineProblems names the policies that are not in force as written.
func (rep *Reporter) quarantineProblems(quarantined []control.Quarantined) []model.Problem {
	var found []model.Problem
	for _, q := range quarantined {
		about := quarantine.Policies(q)
		if len(about) == 0 {
			about = []model.ObjectRef{{Kind: q.Stage + " " + q.Kind, Name: q.Name}}
		}
		for _, object := range about {
			found = append(found, model.Problem{Source: rep.Cluster.Source(object), Object: object, Reason: quarantine.Reason(q)})
		}
	}
	return found
}

// PodsReady reports whether the pods are attached, known, and programmed. A pod that a
// quarantined object closes is an error, because the object may stay quarantined.
func (rep *Reporter) PodsReady(pods []model.PodID) (bool, error) {
	closed := rep.Quarantine.View().Closed
	for _, id := range pods {
		state, reason := rep.Cluster.Model().State(id, closed)
		if state == control.EndpointClosed && closed[id] != "" && rep.Cluster.Model().Endpoints[id] != nil {
			return false, fmt.Errorf("pod %s is closed: %s", id, reason)
		}
		if state != control.EndpointProgrammed {
			return false, nil
		}
	}
	return true, nil
}

// Unprogrammed returns why the policy of a pod is not in force, if it is not.
func (rep *Reporter) Unprogrammed(id model.PodID) string {
	switch state, reason := rep.Cluster.Model().State(id, rep.Quarantine.View().Closed); {
	case state == control.EndpointProgrammed:
		return ""
	case state == control.EndpointClosed:
		return reason
	case rep.Progress.LastError() != "":
		return "programming the dataplane failed: " + rep.Progress.LastError()
	}
	return "its policy is still being programmed"
}

// objectProblems returns the problems that modules have with users' objects, with their files.
func (rep *Reporter) objectProblems() []datastore.Notice {
	all := rep.Parts.ObjectProblems()
	for i := range all {
		if source := rep.Cluster.Source(all[i].Object); source != "" {
			all[i].Source = source
		}
	}
	return all
}
