package driver

import (
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// noticeUnreadable says that a table of the backend cannot be read in full.
const noticeUnreadable = "TableUnreadable"

// unchangedProblems says that the last change of the backend ended where it began.
func (rep *reporter) unchangedProblems() []model.Problem {
	if rep.stages.unchanged == nil {
		return nil
	}
	return []model.Problem{{Object: model.NodeRef(rep.cluster.Node()), Reason: rep.stages.unchanged.Error()}}
}

// outages returns the reasons why this node is not ready although everything is programmed.
func (rep *reporter) outages() []datastore.Notice {
	all := rep.stages.leftovers.notices(rep.cluster.Node())
	for _, r := range rep.stages.runners {
		for _, reason := range r.unreadable {
			all = append(all, datastore.Notice{Problem: model.Problem{Object: model.NodeRef(rep.cluster.Node()), Reason: reason}, Kind: noticeUnreadable})
		}
	}
	return append(all, rep.modules.notices()...)
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
