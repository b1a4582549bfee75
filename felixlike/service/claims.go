package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// tuple is what a client connects to. The address of a node port is the unspecified one of the family.
type tuple struct {
	addr     netip.Addr
	protocol model.Protocol
	port     uint16
}

// claims finds the Services that claim an address. A list has the Services once.
type claims struct {
	tuples map[tuple][]*spec
	// owners are the Services that have an address as a cluster IP or from a load balancer, external those that have it as an externalIP.
	owners, external map[netip.Addr][]*spec
	// nodes are those that have the address.
	nodes map[netip.Addr][]string
}

func newClaims() *claims {
	return &claims{tuples: map[tuple][]*spec{}, owners: map[netip.Addr][]*spec{}, external: map[netip.Addr][]*spec{}, nodes: map[netip.Addr][]string{}}
}

// tuplesOf calls f with all that a Service claims, and the rank of the claim.
func (p *spec) tuplesOf(f func(t tuple, rank int)) {
	for _, at := range p.ports {
		for _, a := range p.addresses {
			f(tuple{a.Addr, at.protocol, at.port}, a.rank())
		}
		if at.nodePort != 0 {
			for _, fam := range p.families {
				f(tuple{fam.unspecified(), at.protocol, at.nodePort}, 0)
			}
		}
	}
}

// add and remove return the other Services that the change may affect.
func (c *claims) add(p *spec) (affected []*spec) {
	p.tuplesOf(func(t tuple, _ int) {
		affected = append(affected, c.tuples[t]...)
		c.tuples[t] = with(c.tuples[t], p)
	})
	for _, a := range p.addresses {
		if a.kind == model.ExternalIP {
			c.external[a.Addr] = with(c.external[a.Addr], p)
			continue
		}
		affected = append(affected, c.external[a.Addr]...)
		c.owners[a.Addr] = with(c.owners[a.Addr], p)
	}
	return affected
}

func (c *claims) remove(p *spec) (affected []*spec) {
	p.tuplesOf(func(t tuple, _ int) { affected = append(affected, without(c.tuples, t, p)...) })
	for _, a := range p.addresses {
		if a.kind == model.ExternalIP {
			without(c.external, a.Addr, p)
			continue
		}
		without(c.owners, a.Addr, p)
		affected = append(affected, c.external[a.Addr]...)
	}
	return affected
}

func with(all []*spec, p *spec) []*spec {
	if slices.Contains(all, p) {
		return all
	}
	return append(all, p)
}

// without removes a Service from a list, and returns the rest of it.
func without[K comparable](lists map[K][]*spec, k K, p *spec) []*spec {
	left := slices.DeleteFunc(lists[k], func(o *spec) bool { return o == p })
	if len(left) == 0 {
		delete(lists, k)
		return nil
	}
	lists[k] = left
	return left
}

// refusedAddress says why a Service may not have an address, or "".
func (c *claims) refusedAddress(p *spec, a address) string {
	if a.kind != model.ExternalIP {
		return ""
	}
	if nodes := c.nodes[a.Addr]; len(nodes) > 0 {
		return fmt.Sprintf("%s is an address of %s: refused", a.Addr, model.NodeRef(slices.Min(nodes)))
	}
	var owner *spec
	for _, o := range c.owners[a.Addr] {
		if o == p {
			return ""
		}
		if owner == nil || o.older(owner) {
			owner = o
		}
	}
	if owner == nil {
		return ""
	}
	return fmt.Sprintf("%s is an address of %s (%s): refused", a.Addr, refOf(owner.name), owner.fieldOf(a.Addr))
}

func (p *spec) fieldOf(a netip.Addr) string {
	return p.addresses[slices.IndexFunc(p.addresses, func(o address) bool { return o.Addr == a })].field
}

// refusedTuple says why a Service may not have an address and port, or "". The better rank wins, then the older Service.
func (c *claims) refusedTuple(p *spec, t tuple) string {
	if len(c.tuples[t]) < 2 {
		return ""
	}
	best, rank := p, p.rankOf(t)
	own := rank
	for _, o := range c.tuples[t] {
		if r := o.rankOf(t); r < rank || r == rank && o.older(best) {
			best, rank = o, r
		}
	}
	switch {
	case best == p:
		return ""
	case rank < own:
		return fmt.Sprintf("%s belongs to %s, which has it as %s: refused", t, refOf(best.name), best.fieldOf(t.addr))
	}
	return fmt.Sprintf("%s belongs to %s, which is older: refused", t, refOf(best.name))
}

func (t tuple) String() string {
	if t.addr.IsUnspecified() {
		return fmt.Sprintf("node port %d/%s", t.port, t.protocol)
	}
	return fmt.Sprintf("%s, port %d/%s,", t.addr, t.port, t.protocol)
}

// rankOf returns the best rank with which a Service claims t.
func (p *spec) rankOf(t tuple) int {
	best := int(^uint(0) >> 1)
	p.tuplesOf(func(o tuple, rank int) {
		if o == t {
			best = min(best, rank)
		}
	})
	return best
}
