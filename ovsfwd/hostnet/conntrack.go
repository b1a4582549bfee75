package hostnet

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/model"
)

// Conntrack forgets connections of addresses that changed hands. An
// established connection passes policy; the next pod with its address must
// not inherit that. It is used from one goroutine.
type Conntrack struct {
	pending addressSet
}

// NewConntrack returns a Conntrack with nothing to forget.
func NewConntrack() *Conntrack { return &Conntrack{pending: addressSet{}} }

// Forget wants the connections from and to an address to be forgotten.
func (c *Conntrack) Forget(a netip.Addr) { c.pending[a.Unmap()] = struct{}{} }

// forgetAttempts bounds the dumps for one apply: an entry that ends by itself
// between dump and delete makes the delete fail, and the next dump shows
// whether anything is left.
const forgetAttempts = 3

// Apply deletes the entries and returns how many there were. Without an
// address to forget it does not look. The whole table of a family is dumped
// once for all its addresses.
func (c *Conntrack) Apply(context.Context) (int, error) {
	deleted := 0
	for _, f := range model.Families() {
		of := addressSet{}
		for a := range c.pending {
			if model.FamilyOf(a) == f {
				of[a] = struct{}{}
			}
		}
		n, err := of.forget(f)
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("forget connections of addresses that changed hands: %w", err)
		}
		for a := range of {
			delete(c.pending, a)
		}
	}
	return deleted, nil
}

type addressSet map[netip.Addr]struct{}

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
