package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/tables/nftables/foreign"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// Bypassed finds chains of other programs that may do something with packets of established connections of pods. Such
// packets come to them only if they pass the host. Only one goroutine may use it.
type Bypassed struct {
	netns  int
	legacy *iptables.LegacyActs
	// generation is that of the ruleset of nf_tables at the last read, and found its result; read says that there was one.
	generation uint32
	found      []string
	read       bool
}

// NewBypassed returns one for a network namespace, by its descriptor; zero is the process's own.
func NewBypassed(netns int) *Bypassed {
	return &Bypassed{netns: netns, legacy: iptables.NewLegacyActs(netns, model.GatewayPort)}
}

// Close ends the use.
func (b *Bypassed) Close() { b.legacy.Close() }

// Find returns the chains, for people, each with what it may do. Unless again is true, it reads only what seems to have changed
// since the last call: a change of iptables-legacy that keeps the size of its table is missed.
func (b *Bypassed) Find(ctx context.Context, again bool) ([]string, error) {
	legacy, err := b.legacy.Find(ctx, again)
	if err != nil {
		return nil, fmt.Errorf("iptables-legacy: %w", err)
	}
	now, known := b.now()
	if !b.read || again || !known || now != b.generation {
		acts, err := foreign.Acts(b.netns, nftables.DefaultTable, iptables.Prefix, foreign.Named(b.netns, model.GatewayPort))
		if err != nil {
			return nil, fmt.Errorf("nf_tables: %w", err)
		}
		b.found, b.generation, b.read = nil, now, true
		for _, a := range acts {
			b.found = append(b.found, a.String())
		}
	}
	return slices.Concat(b.found, legacy), nil
}

// now returns the generation of the ruleset, if the kernel says it.
func (b *Bypassed) now() (generation uint32, known bool) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: b.netns})
	if err != nil {
		return 0, false
	}
	generation, err = watch.ReadGeneration(c)
	return generation, errors.Join(err, c.Close()) == nil
}
