package backend

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/tables/nftables/foreign"
)

// FirewallsStage is the stage of the rule in INPUT of iptables. It also looks for other firewalls that drop the
// tunnel's packets.
const FirewallsStage = "firewalls"

// firewallsEvery is the least time between two looks at the tables of other programs: on a node with a proxy in nf_tables
// they change all the time.
const firewallsEvery = time.Minute

// Firewalls returns the stage of the rule by which packets of nodes to the tunnel port pass INPUT of iptables where
// that may drop them. It relies on the mark that the table of TunnelPort sets. Without a port it removes the rule.
// The function returns the chains of nf_tables that drop such packets; it may be called from any goroutine. ends
// returns the addresses of a tunnel, as far as they are known.
func Firewalls(c Config, ends func() managers.Ends) (Stage, func() []model.Problem) {
	if c.TunnelPort == 0 {
		return Stage{Name: FirewallsStage, Once: true, Aside: true, Timeout: 30 * time.Second, Apply: func(ctx context.Context) (Applied, error) {
			return Applied{}, iptables.RemoveInputRule(ctx, c.NetNS)
		}}, func() []model.Problem { return nil }
	}
	var problems atomic.Pointer[[]model.Problem]
	var looked time.Time
	rule := iptables.NewInputRule(c.TunnelPort, rules.MarkBelieved, c.NetNS)
	return Stage{
			Name: FirewallsStage, Aside: true, Timeout: 30 * time.Second,
			Invalidate: rule.Invalidate, Watch: rule.WatchNFT, WatchToo: rule.WatchLegacy, Overlooks: true,
			Apply: func(ctx context.Context) (Applied, error) {
				writes, err := rule.Apply(ctx)
				// Without a tunnel device of the kernel, the tunnel's packets do not pass INPUT.
				if err == nil && !c.Switch.Node.Userspace && time.Since(looked) > firewallsEvery {
					var found []model.Problem
					if found, err = dropping(c, ends()); err == nil {
						looked = time.Now()
						problems.Store(&found)
					}
				}
				return Applied{Writes: writes}, err
			},
		}, func() []model.Problem {
			if all := problems.Load(); all != nil {
				return *all
			}
			return nil
		}
}

// dropping returns the chains that drop packets of peers to the tunnel port.
func dropping(c Config, ends managers.Ends) ([]model.Problem, error) {
	chains, p, err := DroppingTunnel(c.NetNS, c.TunnelPort, ends)
	if err != nil {
		return nil, err
	}
	var all []model.Problem
	for _, chain := range chains {
		all = append(all, model.Problem{
			Object: model.ObjectRef{Kind: "Node", Name: c.Node},
			Reason: fmt.Sprintf("%s drops tunnel packets of nodes, so pods of other nodes do not reach pods of this node: %s", chain, chain.Accepting(p)),
		})
	}
	return all, nil
}

// DroppingTunnel returns the chains of nf_tables of other programs that drop packets of nodes to the tunnel port,
// and the packet that they drop. The ends of the tunnel may be unknown.
func DroppingTunnel(netns int, port uint16, ends managers.Ends) ([]foreign.Chain, foreign.Packet, error) {
	p := foreign.Packet{Source: ends.Peer, Destination: ends.Own, Port: port, Mark: rules.MarkBelieved}
	if p.Source.IsValid() {
		// Without a route to it, a condition on the interface may be true or false.
		p.Interface, _ = foreign.Incoming(netns, p.Source)
	}
	chains, err := foreign.Drops(netns, nftables.DefaultTable, p)
	return chains, p, err
}
