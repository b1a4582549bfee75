package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/model"
)

// ipBlock is a block of a rule with its exceptions, which are strict parts of it.
type ipBlock struct {
	cidr    netip.Prefix
	excepts []netip.Prefix
}

// blockMembers returns the members of the group that has the addresses of all
// blocks: without exceptions the fewest prefixes, else at most one for each prefix
// that a block names (two for all addresses).
//
// The longest prefix around an address decides whether the group has the address. It
// becomes an exception only where no block has its addresses: an exception of one
// block hides nothing of another.
func blockMembers(blocks []ipBlock) ([]model.Member, error) {
	if !slices.ContainsFunc(blocks, func(b ipBlock) bool { return len(b.excepts) > 0 }) {
		return mergedMembers(blocks)
	}
	bounds := boundsOf(blocks)
	w := blockWalk{inside: make([]int, len(blocks))}
	var members []model.Member
	for len(bounds) > 0 {
		p := bounds[0].prefix
		n := 1
		for n < len(bounds) && bounds[n].prefix == p {
			n++
		}
		w.leaveFor(p)
		around := w.has()
		w.enter(bounds[:n])
		if has := w.has(); has != around {
			members = append(members, model.Member{Prefix: p, Except: !has})
		}
		bounds = bounds[n:]
	}
	return members, nil
}

// mergedMembers returns the fewest prefixes that have the addresses of blocks
// without exceptions.
func mergedMembers(blocks []ipBlock) ([]model.Member, error) {
	var b netipx.IPSetBuilder
	for _, block := range blocks {
		b.AddPrefix(block.cidr)
	}
	s, err := b.IPSet()
	if err != nil {
		return nil, err
	}
	var members []model.Member
	for _, p := range s.Prefixes() {
		members = append(members, model.Member{Prefix: p})
	}
	return members, nil
}

// bound is a prefix that a block names.
type bound struct {
	prefix netip.Prefix
	block  int
	except bool
}

// boundsOf returns what the blocks name, wider prefixes before those within them.
// All addresses of a family are two halves, since the kernel's ipset does not take
// a prefix of length zero.
func boundsOf(blocks []ipBlock) []bound {
	var bounds []bound
	for i, b := range blocks {
		if b.cidr.Bits() == 0 {
			low := netip.PrefixFrom(b.cidr.Addr(), 1)
			high := netip.PrefixFrom(netipx.PrefixLastIP(low).Next(), 1)
			bounds = append(bounds, bound{prefix: low, block: i}, bound{prefix: high, block: i})
		} else {
			bounds = append(bounds, bound{prefix: b.cidr, block: i})
		}
		for _, e := range b.excepts {
			bounds = append(bounds, bound{e, i, true})
		}
	}
	slices.SortFunc(bounds, func(a, b bound) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	return bounds
}

// blockWalk goes through bounds in order.
type blockWalk struct {
	// open are the bounds around the position.
	open []bound
	// inside counts the exceptions around the position for each block. holding counts
	// the blocks around the position without such exceptions.
	inside  []int
	holding int
}

func (w *blockWalk) has() bool { return w.holding > 0 }

// leaveFor leaves the prefixes that p is not within.
func (w *blockWalk) leaveFor(p netip.Prefix) {
	for n := len(w.open); n > 0 && !w.open[n-1].prefix.Overlaps(p); n = len(w.open) {
		b := w.open[n-1]
		w.open = w.open[:n-1]
		switch {
		case !b.except:
			w.holding--
		case w.inside[b.block] == 1:
			w.holding++
			fallthrough
		default:
			w.inside[b.block]--
		}
	}
}

// enter enters a prefix, by all that blocks say about it.
func (w *blockWalk) enter(bounds []bound) {
	for _, b := range bounds {
		switch {
		case !b.except:
			w.holding++
		case w.inside[b.block] == 0:
			w.holding--
			fallthrough
		default:
			w.inside[b.block]++
		}
	}
	w.open = append(w.open, bounds...)
}
