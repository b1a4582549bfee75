package compile

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/model"
)

// ipBlock is a block of a rule. Its exceptions are strict parts of it.
type ipBlock struct {
	cidr    netip.Prefix
	excepts []netip.Prefix
}

// blockMembers returns the members of the group with the addresses of all blocks. Without
// exceptions these are the fewest prefixes. Otherwise it is at most one for each prefix in
// a block, or two for a prefix of all addresses.
//
// The longest member that contains an address decides whether the group has the address.
// A member is an exception only if no block has its addresses, so an exception of one
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

// bound is a prefix in a block, of the block itself or of an exception.
type bound struct {
	prefix netip.Prefix
	block  int
	except bool
}

// boundsOf returns the prefixes of the blocks, each before the prefixes within it. A prefix
// of length zero becomes two halves, because the kernel's ipset refuses it.
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

// blockWalk visits bounds in order.
type blockWalk struct {
	// open are the bounds that contain the current prefix.
	open []bound
	// inside counts, for each block, its exceptions that contain the current prefix.
	// holding counts the blocks that contain it outside their exceptions.
	inside  []int
	holding int
}

func (w *blockWalk) has() bool { return w.holding > 0 }

// leaveFor closes the bounds that do not contain p.
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

// enter opens all bounds of one prefix.
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
