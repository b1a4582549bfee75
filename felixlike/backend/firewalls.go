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
		return Stage{Name: FirewallsStage, StartupOnly: true, BestEffort: true, Timeout: 30 * time.Second, Apply: func(ctx context.Context) (Applied, error) {
			return Applied{}, iptables.RemoveInputRule(ctx, c.NetNS)
		}}, func() []model.Problem { return nil }
	}
	w := &firewallRule{config: c, ends: ends, rule: iptables.NewInputRule(c.TunnelPort, rules.MarkBelieved, c.NetNS)}
	return Stage{
		Name: FirewallsStage, BestEffort: true, Timeout: 30 * time.Second,
		Invalidate: w.rule.Invalidate, Watch: w.rule.WatchNFT, WatchToo: w.rule.WatchLegacy, WatchIncomplete: true,
		Apply: w.apply,
	}, w.problems
}

// firewallRule keeps the rule, and knows what drops packets of peers.
type firewallRule struct {
	config Config
	ends   func() managers.Ends
	rule   *iptables.HeadRules
	looked time.Time
	// failed is the last failure of the rule, dropping the chains of other programs.
	failed   atomic.Pointer[string]
	dropping atomic.Pointer[[]string]
}

// apply never fails: felixlike works without the rule, and firewalls of others must not make an agent not ready.
func (w *firewallRule) apply(ctx context.Context) (Applied, error) {
	writes, err := w.rule.Apply(ctx)
	w.failed.Store(nil)
	if err != nil {
		reason := fmt.Sprintf("the agent cannot keep its rule for tunnel packets of nodes, which may be dropped: %v", err)
		w.failed.Store(&reason)
	}
	// Without a tunnel device of the kernel, the tunnel's packets do not pass INPUT. WireGuard's always do.
	if (!w.config.Switch.Node.Userspace || w.config.TrafficMode == model.WireGuard) && time.Since(w.looked) > firewallsEvery {
		w.looked = time.Now()
		found := w.look()
		w.dropping.Store(&found)
	}
	return Applied{Writes: writes}, nil
}

// look returns the chains that drop packets of peers to the tunnel port, with the rule to add.
func (w *firewallRule) look() (all []string) {
	chains, p, err := DroppingTunnel(w.config.NetNS, w.config.TunnelPort, w.ends(), w.rule.Hidden())
	if err != nil {
		return []string{fmt.Sprintf("whether chains of nftables drop tunnel packets of nodes is not known: %v", err)}
	}
	for _, chain := range chains {
		all = append(all, fmt.Sprintf("%s drops tunnel packets of nodes, so pods of other nodes do not reach pods of this node: %s", chain, chain.Accepting(p)))
	}
	return all
}

// problems returns what status says. It may be called from any goroutine.
func (w *firewallRule) problems() (all []model.Problem) {
	add := func(reason string) {
		all = append(all, model.Problem{Object: model.ObjectRef{Kind: "Node", Name: w.config.Node}, Reason: reason})
	}
	if reason := w.failed.Load(); reason != nil {
		add(*reason)
	}
	if found := w.dropping.Load(); found != nil {
		for _, reason := range *found {
			add(reason)
		}
	}
	return all
}

// DroppingTunnel returns the chains of nf_tables of other programs that drop packets of nodes to the tunnel port,
// and the packet that they drop. The ends of the tunnel may be unknown. With
// hidden, chains of iptables are among them, which the tools of iptables cannot show.
func DroppingTunnel(netns int, port uint16, ends managers.Ends, hidden bool) ([]foreign.Chain, foreign.Packet, error) {
	p := foreign.Packet{Source: ends.Peer, Destination: ends.Own, Port: port, Mark: rules.MarkBelieved, IPTables: hidden}
	if p.Source.IsValid() {
		// Without a route to it, a condition on the interface may be true or false.
		p.Interface, _ = foreign.Incoming(netns, p.Source)
	}
	chains, err := foreign.Drops(netns, nftables.DefaultTable, p)
	return chains, p, err
}
