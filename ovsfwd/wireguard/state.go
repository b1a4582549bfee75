package wireguard

import (
	"net"
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/felixlike/felixlike/model"
)

// State is the desired state of the device, beside its key and port.
type State struct {
	// Addresses are the device's own: the source of packets that this node masquerades into it.
	Addresses []netip.Prefix
	Peers     []Peer
}

// Peer is another node.
type Peer struct {
	Key      model.PublicKey
	Endpoint netip.AddrPort
	// Sources are the only sources of packets that are believed of the peer, and the only destinations that are
	// encrypted to it (WireGuard's allowed IPs). No two peers have the same.
	Sources []netip.Prefix
}

// change is a write of one peer, with the difference that it removes.
type change struct {
	peer wgtypes.PeerConfig
	what string
}

// changes returns the writes that bring the observed peers to the desired ones: first those that remove a peer. A peer that
// is as desired is not written, so its session goes on.
func changes(wanted []Peer, have []wgtypes.Peer) []change {
	var all []change
	byKey := map[wgtypes.Key]*wgtypes.Peer{}
	for i := range have {
		byKey[have[i].PublicKey] = &have[i]
		if !slices.ContainsFunc(wanted, func(p Peer) bool { return wgtypes.Key(p.Key) == have[i].PublicKey }) {
			all = append(all, change{wgtypes.PeerConfig{PublicKey: have[i].PublicKey, Remove: true}, "foreign"})
		}
	}
	for _, p := range wanted {
		if c, differs := changed(p, byKey[wgtypes.Key(p.Key)]); differs {
			all = append(all, c)
		}
	}
	return all
}

// changed returns the write of one peer; have is nil if it is missing. Sources are added without taking the others away for a
// moment, unless one has to go.
func changed(p Peer, have *wgtypes.Peer) (change, bool) {
	c := change{wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), UpdateOnly: have != nil}, "missing"}
	var sources []netip.Prefix
	if have != nil {
		for _, n := range have.AllowedIPs {
			sources = append(sources, prefixOf(n))
		}
	}
	lacks := slices.DeleteFunc(slices.Clone(p.Sources), func(s netip.Prefix) bool { return slices.Contains(sources, s) })
	surplus := slices.ContainsFunc(sources, func(s netip.Prefix) bool { return !slices.Contains(p.Sources, s) })
	if surplus {
		c.peer.ReplaceAllowedIPs, lacks = true, p.Sources
	}
	for _, s := range lacks {
		c.peer.AllowedIPs = append(c.peer.AllowedIPs, netOf(s))
	}
	moved := have == nil || have.Endpoint == nil || endpointOf(have.Endpoint) != p.Endpoint
	if moved {
		c.peer.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
	}
	switch {
	case have == nil:
	case surplus || len(lacks) > 0:
		c.what = "other allowed IPs"
	case moved:
		c.what = "another endpoint"
	default:
		return c, false
	}
	return c, true
}

func endpointOf(a *net.UDPAddr) netip.AddrPort {
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

func prefixOf(n net.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	a, _ := netip.AddrFromSlice(n.IP)
	if a.Is4In6() && bits >= 96 {
		bits -= 96
	}
	return netip.PrefixFrom(a.Unmap(), bits)
}

func netOf(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
