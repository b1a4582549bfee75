package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/tables/nftables/foreign"
)

// others are the firewalls of other programs on a node. What does not depend on the packet is read once.
type others struct {
	site   *trace.Site
	netns  string
	links  map[string]foreign.Interface
	legacy map[model.Family]bool
}

func othersOf(netns string, s *trace.Site) *others {
	return &others{site: s, netns: netns, links: map[string]foreign.Interface{}, legacy: map[model.Family]bool{}}
}

// dropping returns the chains of other programs at FORWARD of the node's network namespace that drop a packet for certain.
func (o *others) dropping(ctx context.Context, p trace.Forwarded) (all []trace.ForeignChain, err error) {
	ns, err := os.Open(o.netns)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	fd, s := int(ns.Fd()), o.site
	side := func(name string, other netip.Addr) foreign.Interface {
		if name != s.Uplink {
			if _, known := o.links[name]; !known {
				o.links[name] = foreign.Named(fd, name)
			}
			return o.links[name]
		}
		by, _ := foreign.Incoming(fd, other) // without a route it is not known
		return by
	}
	chains, err := foreign.DropsPacket(fd, nftables.DefaultTable, iptables.Prefix, foreign.Forwarded{
		In: side(p.In, p.Source), Out: side(p.Out, p.Destination), Source: p.Source, Destination: p.Destination,
		Protocol: uint8(p.Protocol), Ports: [2]uint16{p.SourcePort, p.Port}, New: p.New,
	})
	if err != nil {
		return nil, fmt.Errorf("look for chains of other programs at FORWARD of %s: %w", s.Node, err)
	}
	for _, c := range chains {
		all = append(all, trace.ForeignChain{Table: fmt.Sprintf("table %s %s", c.Family, c.Table), Chain: c.Name})
	}
	if p.In != s.Gateway && p.Out != s.Gateway {
		return all, nil
	}
	f := model.FamilyOf(p.Destination)
	drops, known := o.legacy[f]
	if !known {
		if drops, err = iptables.LegacyDropsForwarded(ctx, fd, f); err != nil {
			return nil, fmt.Errorf("look for chains of iptables-legacy at FORWARD of %s: %w", s.Node, err)
		}
		o.legacy[f] = drops
	}
	if drops {
		all = append(all, trace.ForeignChain{Table: "table filter of iptables-legacy", Chain: "FORWARD"})
	}
	return all, nil
}
