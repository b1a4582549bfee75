package preview

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// blocks lists the prefixes that rules of the policies name, exceptions among them,
// each once, the addresses of nodes if a rule has nodes as peers, and other prefixes. An invalid
// prefix matches nothing.
func blocks(policies []anyPolicy, nodes []*corev1.Node, others ...netip.Prefix) []netip.Prefix {
	seen := map[netip.Prefix]bool{}
	var all []netip.Prefix
	add := func(text string) {
		if p, err := compile.ParseCIDR(text); err == nil && !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	for _, p := range policies {
		for _, text := range p.prefixes() {
			add(text)
		}
	}
	if slices.ContainsFunc(policies, anyPolicy.namesNodes) {
		for _, text := range nodeAddresses(nodes) {
			add(text)
		}
	}
	for _, p := range others {
		add(p.String())
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

// blocks lists the prefixes that the policies and the failsafe ports distinguish.
func (v *verdicts) blocks(policies []anyPolicy) []netip.Prefix {
	return blocks(policies, v.objects.Nodes, v.failsafe.Nets()...)
}

// outside returns the regions of addresses that no block divides any further, for a
// family, each with an address outside the cluster. It leaves out regions that are
// entirely the cluster's.
func outside(f model.Family, blocks []netip.Prefix, taken space) []*end {
	root := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if f == model.IPv6 {
		root = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	all := []netip.Prefix{root}
	for _, b := range blocks {
		if model.FamilyOf(b.Addr()) == f && b != root {
			all = append(all, b)
		}
	}
	var regions []*end
	for _, p := range all {
		inner := children(p, all)
		if a := taken.free(p, inner); a.IsValid() {
			regions = append(regions, &end{text: regionText(p, root, inner), addr: a, region: p, inside: inner})
		}
	}
	return regions
}

// children returns the largest prefixes inside of one.
func children(p netip.Prefix, all []netip.Prefix) []netip.Prefix {
	var inner []netip.Prefix
	for _, c := range all {
		if c != p && p.Overlaps(c) && c.Bits() > p.Bits() && !slices.ContainsFunc(inner, func(o netip.Prefix) bool { return o.Overlaps(c) && o.Bits() < c.Bits() }) {
			inner = slices.DeleteFunc(inner, func(o netip.Prefix) bool { return c.Overlaps(o) && c.Bits() < o.Bits() })
			inner = append(inner, c)
		}
	}
	return inner
}

// space is the addresses of the cluster.
type space struct {
	prefixes []netip.Prefix
	own      map[netip.Addr]bool
}

// free returns an address that is in the prefix, and neither in the inner ones nor the cluster's, if there is any. In the
// whole of an address family, addresses kept for documentation come first: no cluster has them.
func (s space) free(p netip.Prefix, inner []netip.Prefix) netip.Addr {
	inner = slices.DeleteFunc(slices.Concat(inner, s.prefixes), func(c netip.Prefix) bool { return !c.Overlaps(p) })
	if p.Bits() == 0 {
		a := netip.MustParseAddr("203.0.113.77")
		if p.Addr().Is6() {
			a = netip.MustParseAddr("2001:db8:7777::77")
		}
		if !s.own[a] && !slices.ContainsFunc(inner, func(c netip.Prefix) bool { return c.Contains(a) }) {
			return a
		}
	}
	return free(p, inner, s.own, false)
}

// free returns the first, or the last, address of a prefix that is not inside of it and nobody's.
func free(p netip.Prefix, inside []netip.Prefix, own map[netip.Addr]bool, backwards bool) netip.Addr {
	a, next := p.Addr(), func(_ netip.Addr, last netip.Addr) netip.Addr { return last.Next() }
	if backwards {
		a, next = last(p), func(first, _ netip.Addr) netip.Addr { return first.Prev() }
	}
	for a.IsValid() && p.Contains(a) {
		at := slices.IndexFunc(inside, func(c netip.Prefix) bool { return c.Contains(a) })
		switch {
		case at >= 0:
			a = next(inside[at].Addr(), last(inside[at]))
		case own[a]:
			a = next(a, a)
		default:
			return a
		}
	}
	return netip.Addr{}
}

func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

func regionText(p, root netip.Prefix, inner []netip.Prefix) string {
	text := p.String()
	if p == root {
		if len(inner) == 0 {
			return "anyone outside"
		}
		return "anyone else outside"
	}
	if len(inner) > 0 {
		var names []string
		for _, c := range inner {
			names = append(names, c.String())
		}
		text += " except " + strings.Join(names, " ")
	}
	return text
}
