package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/model"
)

// peerSet is the peer dimension of one rule: everybody, or who is in one of
// the groups: those of selectors, and at most one of networks.
type peerSet struct {
	any                  bool
	selections, networks []groupSpec
}

func (p *peerSet) empty() bool { return !p.any && len(p.selections) == 0 && len(p.networks) == 0 }

// peers compiles the peers of a rule; none at all stand for everybody. Those
// that cannot be understood are left out, so that they match nobody.
func (c *compiler) peers(peers []networkingv1.NetworkPolicyPeer, path string) peerSet {
	out := peerSet{any: len(peers) == 0}
	var blocks []string
	var networks netipx.IPSetBuilder
	var seen set[model.GroupID]
	for i, peer := range peers {
		path := indexed(path, i)
		switch {
		case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
			c.add(path, "ipBlock together with a selector; the peer matches nothing")
		case peer.IPBlock != nil:
			if text, ok := c.block(peer.IPBlock, path+".ipBlock", &networks); ok {
				blocks = append(blocks, text)
			}
		case peer.PodSelector == nil && peer.NamespaceSelector == nil:
			c.add(path, "a peer needs a podSelector, a namespaceSelector or an ipBlock; the peer matches nothing")
		default:
			s, ok := c.selection(peer, path)
			if !ok {
				continue
			}
			if g := addressesOf(s); !seen.has(g.id) {
				seen.add(g.id)
				out.selections = append(out.selections, g)
			}
		}
	}
	if len(blocks) > 0 {
		slices.Sort(blocks)
		out.networks = c.networks(slices.Compact(blocks), &networks, path)
	}
	return out
}

// networks defines the group of a rule's blocks, if anything is left of them.
func (c *compiler) networks(blocks []string, b *netipx.IPSetBuilder, path string) []groupSpec {
	s, err := b.IPSet()
	if err != nil {
		c.add(path, "cannot combine the blocks: %v; none of them matches anything", err)
		return nil
	}
	prefixes := s.Prefixes()
	if len(prefixes) == 0 {
		return nil
	}
	return []groupSpec{networksOf(blocks, prefixes)}
}

// selection compiles a peer with selectors.
func (c *compiler) selection(peer networkingv1.NetworkPolicyPeer, path string) (selectionSpec, bool) {
	s := selectionSpec{namespace: c.namespace, pods: newSelector(nil)}
	ok := true
	if peer.PodSelector != nil {
		pods, errs := compileSelector(peer.PodSelector, path+".podSelector")
		for _, err := range errs {
			c.add(err.Field, "%s; the peer matches nothing", err.ErrorBody())
		}
		s.pods, ok = pods, len(errs) == 0
	}
	if peer.NamespaceSelector != nil {
		namespaces, errs := compileSelector(peer.NamespaceSelector, path+".namespaceSelector")
		for _, err := range errs {
			c.add(err.Field, "%s; the peer matches nothing", err.ErrorBody())
		}
		s.namespace, s.namespaces = "", namespaces
		ok = ok && len(errs) == 0
	}
	return s, ok
}

// block adds what an ipBlock holds to the networks, and returns it as text.
// A block of which any part is wrong holds nothing: without its exceptions it
// would be wider than was meant.
func (c *compiler) block(block *networkingv1.IPBlock, path string, networks *netipx.IPSetBuilder) (string, bool) {
	cidr, err := parseCIDR(block.CIDR)
	if err != nil {
		c.add(path+".cidr", "%v; the block matches nothing", err)
		return "", false
	}
	var b netipx.IPSetBuilder
	b.AddPrefix(cidr)
	ok := true
	var excepts []string
	for i, e := range block.Except {
		except, err := parseCIDR(e)
		if err == nil && (!cidr.Contains(except.Addr()) || except.Bits() <= cidr.Bits()) {
			err = fmt.Errorf("%q is not a strict part of %s", e, cidr)
		}
		if err != nil {
			c.add(fmt.Sprintf("%s.except[%d]", path, i), "%v; the block matches nothing", err)
			ok = false
			continue
		}
		b.RemovePrefix(except)
		excepts = append(excepts, except.String())
	}
	if !ok {
		return "", false
	}
	holds, err := b.IPSet()
	if err != nil {
		c.add(path, "%v; the block matches nothing", err)
		return "", false
	}
	networks.AddSet(holds)
	if len(excepts) == 0 {
		return cidr.String(), true
	}
	slices.Sort(excepts)
	return cidr.String() + " except " + strings.Join(slices.Compact(excepts), " "), true
}

// parseCIDR parses a prefix; host bits are ignored, as the API does.
func parseCIDR(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, errors.New("IPv4-mapped IPv6 addresses are ambiguous: " + s)
	}
	return p.Masked(), nil
}
