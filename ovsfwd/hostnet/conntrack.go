package hostnet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/model"
)

// Conntrack deletes the connections of addresses that changed hands. An established
// connection passes policy, and the next pod with its address must not inherit this. It is
// used from one goroutine.
type Conntrack struct {
	pending   addressSet
	elsewhere []Forgetter
}

// Forgetter deletes connections that are tracked outside of the kernel, and returns their
// number.
type Forgetter interface {
	ForgetConnections(ctx context.Context, addrs []netip.Addr) (int, error)
}

// NewConntrack returns a Conntrack without addresses. It deletes connections in the kernel, in
// all zones, and elsewhere.
func NewConntrack(elsewhere ...Forgetter) *Conntrack {
	return &Conntrack{pending: addressSet{}, elsewhere: elsewhere}
}

// Forget makes the next Apply delete the connections from and to an address.
func (c *Conntrack) Forget(a netip.Addr) { c.pending[a.Unmap()] = struct{}{} }

// forgetAttempts bounds the dumps for one apply. If an entry ends by itself between dump and
// delete, the delete fails, and the next dump shows whether anything is left.
const forgetAttempts = 3

// Apply deletes the entries and returns their number. Without an address it reads
// nothing. It dumps the whole table of a family once for all its addresses. The
// next Apply retries failed deletions.
func (c *Conntrack) Apply(ctx context.Context) (int, error) {
	if len(c.pending) == 0 {
		return 0, nil
	}
	deleted := 0
	var errs []error
	for _, f := range model.Families() {
		n, err := c.pending.of(f).forget(f)
		deleted += n
		errs = append(errs, err)
	}
	addrs := slices.SortedFunc(maps.Keys(c.pending), netip.Addr.Compare)
	for _, e := range c.elsewhere {
		n, err := e.ForgetConnections(ctx, addrs)
		deleted += n
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return deleted, fmt.Errorf("delete connections of addresses that changed hands: %w", err)
	}
	clear(c.pending)
	return deleted, nil
}

type addressSet map[netip.Addr]struct{}

// of returns the addresses of this family.
func (s addressSet) of(f model.Family) addressSet {
	some := addressSet{}
	for a := range s {
		if model.FamilyOf(a) == f {
			some[a] = struct{}{}
		}
	}
	return some
}

func (s addressSet) forget(f model.Family) (deleted int, err error) {
	if len(s) == 0 {
		return 0, nil
	}
	for range forgetAttempts {
		var n uint
		n, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(netlinkFamily(f)), s)
		deleted += int(n)
		if err == nil {
			break
		}
	}
	return deleted, err
}

// MatchConntrackFlow reports whether either end of either direction is in the
// set: with NAT, an address may be in one direction only.
func (s addressSet) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	for _, ip := range [][]byte{flow.Forward.SrcIP, flow.Forward.DstIP, flow.Reverse.SrcIP, flow.Reverse.DstIP} {
		if a, ok := netip.AddrFromSlice(ip); ok {
			if _, in := s[a.Unmap()]; in {
				return true
			}
		}
	}
	return false
}
