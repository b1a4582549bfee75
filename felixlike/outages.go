package felixlike

import (
	"fmt"

	"github.com/felixlike/felixlike/cni/confdir"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/internal/ipvs"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// noticeOtherCNI says that new pods get another CNI's network.
const noticeOtherCNI = "OtherCNI"

// noticeIPVS says that connections to Services bypass policy.
const noticeIPVS = "IPVS"

// noticeTunnels says that the switch would send this node's tunnel packets by another port, or from another address.
const noticeTunnels = "TunnelRoutes"

// noticeForwarded says that another program drops packets of pods at FORWARD.
const noticeForwarded = "ForwardDropped"

// noticeUnreadable says that a table of the backend cannot be read in full.
const noticeUnreadable = "TableUnreadable"

// outages has the reasons why this node is not ready although everything is programmed.
type outages struct {
	node string
	// host may be nil.
	host *hostnet.Reconciler
	// daemon watches ovs-vswitchd. It may be nil.
	daemon *vswitchd.Watcher
	// configs may be nil.
	configs *confdir.Watcher
	// tunnels may be nil.
	tunnels *vswitchd.TunnelRoutes
	// forward returns the chains at FORWARD that drop packets of pods. It may be nil.
	forward func() []string
}

// now returns the current reasons. A reason with a kind becomes an Event.
func (o outages) now() []datastore.Notice {
	var all []datastore.Notice
	add := func(kind, reason string) {
		if reason != "" {
			all = append(all, datastore.Notice{Problem: model.Problem{Object: ref("Node", "", o.node), Reason: reason}, Kind: kind})
		}
	}
	// No Event for these: their texts change with their duration.
	if o.host != nil {
		add("", o.host.Problem())
	}
	if o.daemon != nil {
		add("", o.daemon.Problem())
	}
	if o.tunnels != nil {
		add(noticeTunnels, o.tunnels.Problem())
	}
	add(noticeIPVS, ipvs.Problem())
	if o.forward != nil {
		for _, reason := range o.forward() {
			add(noticeForwarded, reason)
		}
	}
	if o.configs != nil {
		add(noticeOtherCNI, o.configs.Problem())
	}
	return all
}

// unchangedProblems says that the last change of the backend ended where it began.
func (rep *reporter) unchangedProblems() []model.Problem {
	if rep.stages.unchanged == nil {
		return nil
	}
	return []model.Problem{{Object: ref("Node", "", rep.cfg.Node), Reason: rep.stages.unchanged.Error()}}
}

// watchConfigs returns a watcher of the runtime's network configurations, or nil if the
// configuration names no directory.
func (a *agent) watchConfigs() *confdir.Watcher {
	if a.cfg.CNIConfDir == "" {
		return nil
	}
	return confdir.NewWatcher(confdir.Options{
		Dir: a.cfg.CNIConfDir, Own: confdir.Own, Exclusive: a.cfg.Exclusive, Chained: a.chained != nil, Log: a.log.With("component", "cni"),
	})
}

// outages returns the reasons why this node is not ready although everything is programmed.
func (rep *reporter) outages() []datastore.Notice {
	all := append(rep.audit.notices(), rep.stages.leftovers.notices(rep.cfg.Node)...)
	for _, r := range rep.stages.runners {
		for _, reason := range r.unreadable {
			all = append(all, datastore.Notice{Problem: model.Problem{Object: ref("Node", "", rep.cfg.Node), Reason: reason}, Kind: noticeUnreadable})
		}
	}
	if rep.cfg.Outages != nil {
		all = append(all, rep.cfg.Outages()...)
	}
	return all
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
		if now := rep.cluster.tracker.attachments[lost.Pod]; rep.cluster.tracker.endpoints[lost.Pod] == nil || now != nil && now.Sandbox != lost.Sandbox {
			continue
		}
		all = append(all, datastore.Notice{Kind: noticeInterfaceLost, Problem: model.Problem{
			Object: podRef(lost.Pod), Reason: fmt.Sprintf("pod %s has lost its interface %s: it has no network until it is made anew", lost.Pod, lost.Interface),
		}})
	}
	return all
}
