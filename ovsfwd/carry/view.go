package carry

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gaissmai/bart"
	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// view is the nodes of the cluster as this one knows them, and the way to them.
type view struct {
	node    string
	nodes   map[string]*model.Node
	mode    model.TrafficMode
	subnets []netip.Prefix
}

// sight maps addresses to their owners: the node, pods, other nodes.
type sight struct {
	// host has the node's own addresses, those of the gateway port included.
	host map[netip.Addr]bool
	// pods has the pod prefixes of all nodes. bridge has those of this node and, with the addresses of other
	// nodes, of those that the tunnel leads to: all destinations behind the bridge.
	pods, bridge bart.Lite
}

// look reads the node's own addresses from the kernel and joins them with the
// nodes known.
func (v *view) look() (*sight, error) {
	s := &sight{host: map[netip.Addr]bool{}}
	if v.nodes[v.node] == nil {
		return nil, errors.New("the pod network of this node is not known yet")
	}
	addrs, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("addresses of the node: %w", err)
	}
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			s.host[addr.Unmap()] = true
		}
	}
	for name, n := range v.nodes {
		for _, p := range n.PodCIDRs {
			s.pods.Insert(p)
			if v.tunnelled(n, p.Addr()) {
				s.bridge.Insert(p)
			}
		}
		for _, a := range n.Addresses {
			if name == v.node {
				s.host[a.Unmap()] = true
			} else if v.tunnelled(n, a) {
				s.bridge.Insert(netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			}
		}
	}
	return s, nil
}

// tunnelled reports whether an address of a node is behind the bridge: on this node, or through the tunnel.
func (v *view) tunnelled(n *model.Node, a netip.Addr) bool {
	return n.Name == v.node || v.mode.Way(v.nodes[v.node], n, v.subnets, model.FamilyOf(a.Unmap())) == model.ByTunnel
}

// isPod reports whether an address is that of a pod of any node.
func (s *sight) isPod(a netip.Addr) bool { return !s.host[a] && s.pods.Contains(a) }

// behindBridge reports whether an address is reached by way of the bridge.
func (s *sight) behindBridge(a netip.Addr) bool { return !s.host[a] && s.bridge.Contains(a) }

// ownTraffic reports whether a connection is between the node itself and a pod,
// which no policy judges.
func (s *sight) ownTraffic(k *conntrack.Connection) bool {
	from, to := k.Original.Src, k.Reply.Src
	return s.host[from] && s.isPod(to) || s.host[to] && s.isPod(from)
}

// within reports whether both ends of a connection are reached by way of the
// bridge, and the host translates neither: in the switch it does not go through
// the host.
func (s *sight) within(k *conntrack.Connection) bool {
	return s.behindBridge(k.Original.Src) && s.behindBridge(k.Original.Dst) && !k.Translated()
}

// hidden reports whether a connection is to a pod and the host replaced the client's
// address with one of its own (SNAT).
func (s *sight) hidden(k *conntrack.Connection) bool {
	return s.isPod(k.Reply.Src) && s.host[k.Reply.Dst] && !s.host[k.Original.Src]
}

// bridgeTuple is a connection as the bridge sees it.
type bridgeTuple struct {
	conntrack.Tuple
	// gateway is true if the first packet comes from the gateway port.
	gateway bool
}

// mark is that of the connection in the pipeline's zone.
func (x bridgeTuple) mark() uint32 {
	if x.gateway {
		return pipeline.GatewayMark
	}
	return 0
}

// bridgeTuples returns a connection of the kernel as the bridge sees it. The bridge
// sees a pod's packets before the host translates their destination, and packets
// from the host after the translation. It sees a connection of a pod to a Service
// with a pod backend both ways, one after the other.
func (s *sight) bridgeTuples(k *conntrack.Connection) []bridgeTuple {
	behind := k.Reply.Reverse()
	var all []bridgeTuple
	enters := s.behindBridge(k.Original.Src)
	if enters {
		all = append(all, bridgeTuple{k.Original, false})
	}
	redirected := k.Original.Dst != behind.Dst || k.Original.DstPort != behind.DstPort
	if s.behindBridge(behind.Dst) && (!enters || redirected) {
		all = append(all, bridgeTuple{behind, true})
	}
	return all
}
