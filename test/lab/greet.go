package lab

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab/probe"
)

// greetPort is a port that nothing serves: a refusal is as good an answer.
const greetPort = 9

// greetLocked exchanges a datagram between new pods and their nodes, in both
// families, which no policy may block. It returns when all have answered, so
// that both ends have resolved each other before the first probe; a pod that
// does not answer is an error, since every probe of it would look blocked.
func (l *Lab) greetLocked(ctx context.Context, pods []*Pod) error {
	var flows []probe.Flow
	for _, p := range pods {
		for _, a := range p.Addresses() {
			if source := p.node.Address(model.FamilyOf(a)); source.IsValid() && !p.spec.HostNetwork {
				flows = append(flows, probe.Flow{
					From: p.node.station, Source: source, Target: netip.AddrPortFrom(a, greetPort), Protocol: model.UDP,
				})
			}
		}
	}
	for i, o := range probe.Run(ctx, flows, probe.Options{Timeout: 15 * time.Second}) {
		if o.Reason != probe.Refused && o.Reason != probe.Answered {
			return fmt.Errorf("%s does not answer its node: %s", flows[i].Target.Addr(), o.Reason)
		}
	}
	return nil
}

// openTunnelsLocked exchanges a datagram between the gateways of all nodes.
// Open vSwitch loses the first packet to a tunnel's other end while it
// resolves that, and that packet should not be a probe. The probes find broken
// tunnels, so this function reports nothing.
func (l *Lab) openTunnelsLocked(ctx context.Context) {
	var flows []probe.Flow
	for _, from := range l.nodes {
		for _, to := range l.nodes {
			source, target := from.spec.Gateway(model.IPv4), to.spec.Gateway(model.IPv4)
			if from != to && source.IsValid() && target.IsValid() {
				flows = append(flows, probe.Flow{
					From: from.station, Source: source, Target: netip.AddrPortFrom(target, greetPort), Protocol: model.UDP,
				})
			}
		}
	}
	probe.Run(ctx, flows, probe.Options{Timeout: time.Second})
}
