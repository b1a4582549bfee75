package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
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
	var texts []string
	var blocks []ipBlock
	var seen smallmap.Set[model.GroupID]
	for i, peer := range peers {
		path := indexed(path, i)
		switch {
		case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
			c.add(path, "ipBlock together with a selector; the peer matches nothing")
		case peer.IPBlock != nil:
			if b, text, ok := c.block(peer.IPBlock, path+".ipBlock"); ok {
				texts, blocks = append(texts, text), append(blocks, b)
			}
		case peer.PodSelector == nil && peer.NamespaceSelector == nil:
			c.add(path, "a peer needs a podSelector, a namespaceSelector or an ipBlock; the peer matches nothing")
		default:
			s, ok := c.selection(peer, path)
			if !ok {
				continue
			}
			g := c.ids.addressesOf(s)
			c.define(g)
			if !seen.Has(g.id) {
				seen.Add(g.id)
				out.selections = append(out.selections, g)
			}
		}
	}
	if len(blocks) > 0 {
		slices.Sort(texts)
		out.networks = c.networks(slices.Compact(texts), blocks, path)
	}
	return out
}

// networks defines the group of a rule's blocks, if anything is left of them.
func (c *compiler) networks(texts []string, blocks []ipBlock, path string) []groupSpec {
	members, err := blockMembers(blocks)
	if err != nil {
		c.add(path, "cannot combine the blocks: %v; none of them matches anything", err)
		return nil
	}
	if len(members) == 0 {
		return nil
	}
	return []groupSpec{c.ids.networksOf(texts, members)}
}

// selection compiles a peer with selectors.
func (c *compiler) selection(peer networkingv1.NetworkPolicyPeer, path string) (selectionSpec, bool) {
	s := selectionSpec{namespace: c.namespace, pods: label.Everything()}
	ok := true
	if peer.PodSelector != nil {
		pods, errs := label.Compile(peer.PodSelector, path+".podSelector")
		for _, err := range errs {
			c.add(err.Field, "%s; the peer matches nothing", err.ErrorBody())
		}
		s.pods, ok = pods, len(errs) == 0
	}
	if peer.NamespaceSelector != nil {
		namespaces, errs := label.Compile(peer.NamespaceSelector, path+".namespaceSelector")
		for _, err := range errs {
			c.add(err.Field, "%s; the peer matches nothing", err.ErrorBody())
		}
		s.namespace, s.namespaces = "", namespaces
		ok = ok && len(errs) == 0
	}
	return s, ok
}

// block compiles an ipBlock, and returns it as text, too. A block of which any
// part is wrong holds nothing: without its exceptions it would be wider than was
// meant.
func (c *compiler) block(block *networkingv1.IPBlock, path string) (ipBlock, string, bool) {
	cidr, err := parseCIDR(block.CIDR)
	if err != nil {
		c.add(path+".cidr", "%v; the block matches nothing", err)
		return ipBlock{}, "", false
	}
	b := ipBlock{cidr: cidr}
	ok := true
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
		b.excepts = append(b.excepts, except)
	}
	if !ok {
		return ipBlock{}, "", false
	}
	return b, b.text(), true
}

// text returns the block as it is said; equal blocks are said alike.
func (b *ipBlock) text() string {
	if len(b.excepts) == 0 {
		return b.cidr.String()
	}
	var excepts []string
	for _, e := range b.excepts {
		excepts = append(excepts, e.String())
	}
	slices.Sort(excepts)
	return b.cidr.String() + " except " + strings.Join(slices.Compact(excepts), " ")
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
