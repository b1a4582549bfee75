package node

import (
	"log/slog"

	"github.com/felixlike/felixlike/cni/confdir"
	"github.com/felixlike/felixlike/felixlike/config"
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

// Outages has the reasons why this node is not ready although everything is programmed.
type Outages struct {
	Node string
	// Host may be nil.
	Host *hostnet.Reconciler
	// Daemon watches ovs-vswitchd. It may be nil.
	Daemon *vswitchd.Watcher
	// Configs may be nil.
	Configs *confdir.Watcher
	// Tunnels may be nil.
	Tunnels *vswitchd.TunnelRoutes
	// Forward returns the chains at FORWARD that drop packets of pods. It may be nil.
	Forward func() []string
}

// Now returns the current reasons. A reason with a kind becomes an Event.
func (o *Outages) Now() []datastore.Notice {
	var all []datastore.Notice
	add := func(kind, reason string) {
		if reason != "" {
			all = append(all, datastore.Notice{Problem: model.Problem{Object: model.NodeRef(o.Node), Reason: reason}, Kind: kind})
		}
	}
	// No Event for these: their texts change with their duration.
	if o.Host != nil {
		add("", o.Host.Problem())
	}
	if o.Daemon != nil {
		add("", o.Daemon.Problem())
	}
	if o.Tunnels != nil {
		add(noticeTunnels, o.Tunnels.Problem())
	}
	add(noticeIPVS, ipvs.Problem())
	if o.Forward != nil {
		for _, reason := range o.Forward() {
			add(noticeForwarded, reason)
		}
	}
	if o.Configs != nil {
		add(noticeOtherCNI, o.Configs.Problem())
	}
	return all
}

// WatchConfigs returns a watcher of the runtime's network configurations, or nil if the
// configuration names no directory. chained says that another CNI plugin makes the pods' interfaces.
func WatchConfigs(cfg *config.Effective, chained bool, log *slog.Logger) *confdir.Watcher {
	if cfg.CNIConfDir == "" {
		return nil
	}
	return confdir.NewWatcher(confdir.Options{
		Dir: cfg.CNIConfDir, Own: confdir.Own, Exclusive: cfg.Exclusive, Chained: chained, Log: log.With("component", "cni"),
	})
}
