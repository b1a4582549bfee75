package status

import (
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/quarantine"
	"github.com/felixlike/felixlike/model"
)

// noticeDropped is the reason of an Event at a pod whose packets are dropped.
const noticeDropped = "TrafficDropped"

// Notices returns the problems that concern an object of a user, in the order of their objects.
func (rep *Reporter) Notices() []datastore.Notice {
	if !rep.Cluster.InSync() {
		return nil // an object that seems to be missing may still come
	}
	var all []datastore.Notice
	add := func(kind string, known datastore.Known, problems ...model.Problem) {
		for _, p := range problems {
			all = append(all, datastore.Notice{Problem: p, Kind: kind, Known: known})
		}
	}
	for _, o := range slices.Concat(rep.Parts.Notices(), rep.objectProblems(), rep.Cluster.Conflicts(false)) {
		if o.Kind != "" {
			all = append(all, o)
		}
	}
	view := rep.Quarantine.View()
	for _, p := range rep.Cluster.Problems() {
		known := datastore.KnownToAll
		if rep.Progress.Large(p.Object) {
			known = datastore.KnownToSome // the nodes where it applies
		}
		add(cluster.NotUnderstood, known, p)
	}
	for _, q := range view.Quarantined {
		for _, object := range quarantine.Policies(q) {
			add(cluster.Quarantined, datastore.KnownHere, model.Problem{
				Object: object, Reason: q.Stage + " has quarantined " + quarantine.Object(q) + ": " + q.Reason + "; the pods that rely on it are closed",
			})
		}
	}
	for id := range rep.Cluster.Model().Endpoints {
		if state, reason := rep.Cluster.Model().State(id, view.Closed); state == control.EndpointClosed {
			add(noticeDropped, datastore.KnownHere, model.Problem{Object: id.Ref(), Reason: "the pod's packets are dropped: " + reason})
		}
	}
	slices.SortStableFunc(all, func(a, b datastore.Notice) int {
		return strings.Compare(a.Object.String()+"\x00"+a.Kind+"\x00"+a.Field+"\x00"+a.Reason, b.Object.String()+"\x00"+b.Kind+"\x00"+b.Field+"\x00"+b.Reason)
	})
	return all
}
