package felixlike

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/ovsfwd/hostnet"
)

// forgetting has both places forget the connections of addresses that changed
// hands: an established connection passes policy, and the next pod with the
// address must not inherit that. It is used from one goroutine.
type forgetting struct {
	kernel *hostnet.Conntrack
	// inSwitch forgets those that the switch knows.
	inSwitch func(ctx context.Context, addrs []netip.Addr) (int, error)
	pending  map[netip.Addr]struct{}
}

func newForgetting(inSwitch func(ctx context.Context, addrs []netip.Addr) (int, error)) *forgetting {
	return &forgetting{kernel: hostnet.NewConntrack(), inSwitch: inSwitch, pending: map[netip.Addr]struct{}{}}
}

// Forget wants the connections from and to an address to be forgotten.
func (f *forgetting) Forget(a netip.Addr) {
	f.kernel.Forget(a)
	f.pending[a.Unmap()] = struct{}{}
}

// apply forgets them and returns how many there were.
func (f *forgetting) apply(ctx context.Context) (int, error) {
	deleted, err := f.kernel.Apply(ctx)
	if err != nil || len(f.pending) == 0 {
		return deleted, err
	}
	n, err := f.inSwitch(ctx, slices.SortedFunc(maps.Keys(f.pending), netip.Addr.Compare))
	if err != nil {
		return deleted + n, fmt.Errorf("connections of addresses that changed hands: %w", err)
	}
	clear(f.pending)
	return deleted + n, nil
}
