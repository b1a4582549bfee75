package compile

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	networkingv1 "k8s.io/api/networking/v1"
	netutils "k8s.io/utils/net"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// peerSet is the peer dimension of one rule: any peer, or the members of groups. One group
// has all networks of the rule.
type peerSet struct {
	any                  bool
	selections, networks []Group
}

func (p *peerSet) empty() bool { return !p.any && len(p.selections) == 0 && len(p.networks) == 0 }

// peers compiles the peers of a rule. An empty list means any peer. Invalid peers are left
// out, so that they match nothing.
func (c *compiler) peers(peers []networkingv1.NetworkPolicyPeer, path string) peerSet {
	out := peerBuilder{compiler: c}
	for i, peer := range peers {
		path := indexed(path, i)
		switch {
		case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
			c.lost("peer", path, "ipBlock together with a selector")
		case peer.IPBlock != nil:
			if b, ok := c.block(peer.IPBlock, path+".ipBlock"); ok {
				out.blocks = append(out.blocks, b)
			}
		case peer.PodSelector == nil && peer.NamespaceSelector == nil:
			c.lost("peer", path, "a peer needs a podSelector, a namespaceSelector or an ipBlock")
		default:
			if s, ok := c.selection(peer, path); ok {
				out.addPods(s)
			}
		}
	}
	set := out.set(path)
	set.any = len(peers) == 0
	return set
}

// peerBuilder collects the peers of one rule.
type peerBuilder struct {
	compiler *compiler
	// selections and nodes are groups, each once.
	selections, nodes []Group
	blocks            []ipBlock
	seen              smallmap.Set[model.GroupID]
}

func (b *peerBuilder) addPods(s Selection) { b.add(&b.selections, b.compiler.ids.addressesOf(s)) }

func (b *peerBuilder) addNodes(s *label.Selector) { b.add(&b.nodes, b.compiler.ids.nodesOf(s)) }

func (b *peerBuilder) add(to *[]Group, g Group) {
	b.compiler.define(g)
	if !b.seen.Has(g.ID) {
		b.seen.Add(g.ID)
		*to = append(*to, g)
	}
}

// set returns the collected peers.
func (b *peerBuilder) set(path string) peerSet {
	out := peerSet{selections: b.selections, networks: b.nodes}
	if len(b.blocks) == 0 {
		return out
	}
	groups, err := b.compiler.ids.ofBlocks(b.blocks)
	if err != nil {
		b.compiler.Add(path, "cannot combine the blocks: %v; none of them matches anything", err)
		return out
	}
	out.networks = append(out.networks, groups...)
	return out
}

// selection compiles a peer with selectors.
func (c *compiler) selection(peer networkingv1.NetworkPolicyPeer, path string) (Selection, bool) {
	s := Selection{Namespace: c.namespace, Pods: label.Everything()}
	ok := true
	if peer.PodSelector != nil {
		pods, errs := label.Compile(peer.PodSelector, path+".podSelector")
		for _, err := range errs {
			c.lost("peer", err.Field, "%s", err.ErrorBody())
		}
		s.Pods, ok = pods, len(errs) == 0
	}
	if peer.NamespaceSelector != nil {
		namespaces, errs := label.Compile(peer.NamespaceSelector, path+".namespaceSelector")
		for _, err := range errs {
			c.lost("peer", err.Field, "%s", err.ErrorBody())
		}
		s.Namespace, s.Namespaces = "", namespaces
		ok = ok && len(errs) == 0
	}
	return s, ok
}

// block compiles an ipBlock. A block with an invalid part matches nothing: without an exception it
// would be wider than its author wants.
func (c *compiler) block(block *networkingv1.IPBlock, path string) (ipBlock, bool) {
	cidr, err := ParseCIDR(block.CIDR)
	if err != nil {
		c.lost("block", path+".cidr", "%v", err)
		return ipBlock{}, false
	}
	b := ipBlock{cidr: cidr}
	ok := true
	for i, e := range block.Except {
		except, err := ParseCIDR(e)
		if err == nil && (!cidr.Contains(except.Addr()) || except.Bits() <= cidr.Bits()) {
			err = fmt.Errorf("%q is not a strict part of %s", e, cidr)
		}
		if err != nil {
			c.lost("block", fmt.Sprintf("%s.except[%d]", path, i), "%v", err)
			ok = false
			continue
		}
		b.excepts = append(b.excepts, except)
	}
	if !ok {
		return ipBlock{}, false
	}
	return b, true
}

// text returns the block as text. Equal blocks have the same text.
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

// ParseCIDR parses a prefix. As in the API, it ignores host bits, and leading zeros of decimal numbers
// (k8s.io/utils/net): an API server accepts 10.001.0.0/16 as 10.1.0.0/16.
func ParseCIDR(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if _, network, err := netutils.ParseCIDRSloppy(s); err == nil {
			p, _ = netipx.FromStdIPNet(network)
		}
	}
	if !p.IsValid() {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, errors.New("IPv4-mapped IPv6 addresses are ambiguous: " + s)
	}
	return p.Masked(), nil
}
