package felixlike

import (
	"github.com/felixlike/felixlike/cni/confdir"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// noticeOtherCNI says that new pods get another CNI's network.
const noticeOtherCNI = "OtherCNI"

// outages has the reasons why this node is not ready although everything is programmed.
type outages struct {
	node string
	host *hostnet.Reconciler
	// daemon watches ovs-vswitchd.
	daemon *vswitchd.Watcher
	// configs may be nil.
	configs *confdir.Watcher
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
	add("", o.host.Problem())
	add("", o.daemon.Problem())
	if o.configs != nil {
		add(noticeOtherCNI, o.configs.Problem())
	}
	return all
}

// watchConfigs returns a watcher of the runtime's network configurations, or nil if the
// configuration names no directory.
func (a *agent) watchConfigs() *confdir.Watcher {
	if a.cfg.CNIConfDir == "" {
		return nil
	}
	return confdir.NewWatcher(confdir.Options{
		Dir: a.cfg.CNIConfDir, Own: confdir.Own, Exclusive: a.cfg.Exclusive, Log: a.log.With("component", "cni"),
	})
}

// outages returns the reasons why this node is not ready.
func (rep *reporter) outages() []datastore.Notice {
	if rep.cfg.Outages == nil {
		return nil
	}
	return rep.cfg.Outages()
}
