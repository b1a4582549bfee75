package driver

import (
	"fmt"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// noticeUnreadable says that a table of the backend cannot be read in full.
const noticeUnreadable = "TableUnreadable"

// noticeInterfaceLost says that a pod has no network because its interface is gone.
const noticeInterfaceLost = "InterfaceLost"

// unchangedProblems says that the last change of the backend ended where it began.
func (rep *reporter) unchangedProblems() []model.Problem {
	if rep.stages.unchanged == nil {
		return nil
	}
	return []model.Problem{{Object: model.NodeRef(rep.cfg.Node), Reason: rep.stages.unchanged.Error()}}
}

// outages returns the reasons why this node is not ready although everything is programmed.
func (rep *reporter) outages() []datastore.Notice {
	all := rep.stages.leftovers.notices(rep.cfg.Node)
	for _, r := range rep.stages.runners {
		for _, reason := range r.unreadable {
			all = append(all, datastore.Notice{Problem: model.Problem{Object: model.NodeRef(rep.cfg.Node), Reason: reason}, Kind: noticeUnreadable})
		}
	}
	return append(all, rep.modules.notices()...)
}

// lostInterfaces names the pods that have lost their interface. Until everything is programmed,
// it names none: the records of an earlier agent may be out of date.
func (rep *reporter) lostInterfaces() []datastore.Notice {
	if rep.cfg.LostInterfaces == nil || !rep.cluster.inSync() || rep.scheduler.programmed == 0 {
		return nil
	}
	var all []datastore.Notice
	for _, lost := range rep.cfg.LostInterfaces() {
		// A pod that the datastore does not have is deleted. One with another sandbox has been made anew.
		if now := rep.cluster.model.Attachments[lost.Pod]; rep.cluster.model.Endpoints[lost.Pod] == nil || now != nil && now.Sandbox != lost.Sandbox {
			continue
		}
		all = append(all, datastore.Notice{Kind: noticeInterfaceLost, Problem: model.Problem{
			Object: podRef(lost.Pod), Reason: fmt.Sprintf("pod %s has lost its interface %s: it has no network until it is made anew", lost.Pod, lost.Interface),
		}})
	}
	return all
}
