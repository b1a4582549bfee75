package backend

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/tables/nftables/foreign"
)

// ForwardsStage is the stage of the rules at the head of FORWARD of iptables. It also looks for chains of other programs there that drop the
// packets of pods.
const ForwardsStage = "forward rules"

// forwardsEvery is the least time between two looks at the chains of other programs.
const forwardsEvery = 10 * time.Second

// Forwards returns the stage of the rules by which packets of pods pass FORWARD of iptables where that drops what no rule accepts, as Docker
// has it. With accept off they are removed. The function returns which chains at FORWARD drop packets of pods all the same; it may be called from
// any goroutine.
func Forwards(c Config, accept bool) (Stage, func() []string) {
	name := ""
	if accept {
		name = model.GatewayPort
	}
	w := &forwardRules{config: c, rules: iptables.NewForwardRules(name, c.NetNS)}
	return Stage{
			Name: ForwardsStage, BestEffort: true, Timeout: 30 * time.Second,
			Invalidate: w.rules.Invalidate, Watch: w.watch, WatchToo: w.rules.WatchLegacy, WatchIncomplete: true,
			Apply: w.apply,
		}, func() []string {
			if found := w.dropping.Load(); found != nil {
				return *found
			}
			return nil
		}
}

// forwardRules keeps the rules, and knows what drops packets of pods.
type forwardRules struct {
	config   Config
	rules    *iptables.HeadRules
	looked   time.Time
	dropping atomic.Pointer[[]string]
	// noticed is set after a chain of another program at FORWARD has changed.
	noticed atomic.Bool
}

// watch notices changes of FORWARD in the nft variant of iptables, and of chains of other programs there.
func (w *forwardRules) watch(ctx context.Context, changed func()) error {
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return w.rules.WatchNFT(ctx, changed) })
	both.Go(func() error {
		return foreign.WatchForwarded(ctx, w.config.NetNS, nftables.DefaultTable, func() {
			w.noticed.Store(true)
			changed()
		})
	})
	return both.Wait()
}

// apply never fails: a chain of another program is reported, and the rules are tried again.
func (w *forwardRules) apply(ctx context.Context) (Applied, error) {
	writes, err := w.rules.Apply(ctx)
	if noticed := w.noticed.Swap(false); !noticed && writes == 0 && err == nil && time.Since(w.looked) < forwardsEvery {
		return Applied{}, nil
	}
	w.looked = time.Now()
	var found []string
	if err != nil {
		found = append(found, fmt.Sprintf("the agent cannot keep its rules for packets of pods in FORWARD, which may be dropped: %v", err))
	}
	for _, chain := range w.rules.Blocking() {
		found = append(found, fmt.Sprintf("%s drops packets of pods: set forwardAccept, or accept packets from and to the interface %s there", chain, model.GatewayPort))
	}
	netns, outside := w.config.NetNS, foreign.Interface{}
	for _, a := range []string{"192.0.2.1", "2001:db8::1"} { // of nobody (RFC 5737, RFC 3849): the default routes lead there
		if by, err := foreign.Incoming(netns, netip.MustParseAddr(a)); err == nil && outside.Name == "" {
			outside = by
		}
	}
	chains, err := foreign.DropsForwarded(netns, nftables.DefaultTable, iptables.Prefix, foreign.Named(netns, model.GatewayPort), outside, w.config.TrafficMode != model.Encap)
	if err != nil {
		found = append(found, fmt.Sprintf("whether chains of nftables drop packets of pods is not known: %v", err))
	}
	for _, c := range chains {
		at := fmt.Sprintf("nft insert rule %s %s %s", c.Family, c.Table, c.Name)
		found = append(found, fmt.Sprintf("%s at FORWARD drops packets of pods: %s iifname %s accept; %[2]s oifname %[3]s accept", c, at, model.GatewayPort))
	}
	w.dropping.Store(&found)
	return Applied{Writes: writes}, nil
}
