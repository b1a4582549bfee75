package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// pool is an ExternalIPPool.
type pool struct {
	compiled compile.Pool
	problems []model.Problem
}

func (x *egressStore) setPool(id antrea.ID, object antrea.Object) {
	if object == nil {
		delete(x.pools, id)
	} else {
		p := &pool{}
		p.compiled, p.problems = compile.PoolOf(object)
		x.pools[id] = p
	}
	x.onNode() // the candidates may be others
}

// poolOf returns the pool that an Egress names. It may be nil.
func (x *egressStore) poolOf(e *egress) *pool {
	return x.pools[antrea.ID{Kind: e.id.Kind.PoolKind(), Name: e.compiled.Pool}]
}

// mayHold returns which nodes may hold the address of an Egress by election, nil if there is none.
func (x *egressStore) mayHold(e *egress) func(name string, n *nodePeer) bool {
	if among := e.compiled.Among; among != nil {
		return func(name string, _ *nodePeer) bool {
			_, is := slices.BinarySearch(among, name)
			return is
		}
	}
	if nodes := x.candidatesOf(e); nodes != nil {
		return func(_ string, n *nodePeer) bool { return x.index.matches(nodes, n.labels) }
	}
	return nil
}

// candidatesOf returns the selector of the nodes that may hold the address of an Egress, nil if there is no election.
func (x *egressStore) candidatesOf(e *egress) *label.Selector {
	if e.compiled.Pool == "" {
		return e.compiled.Nodes
	}
	if p := x.poolOf(e); p != nil {
		return p.compiled.Nodes
	}
	return nil
}

// allocation gives addresses of pools to Egresses.
type allocation struct {
	*egressStore
	// allocated has the address of each Egress that has one by a Lease, by UID and pool.
	allocated map[owner]netip.Addr
	// taken are the addresses that Egresses have, or name.
	taken map[netip.Addr]bool
	free  map[*pool]*freeAddresses
	// full reports that this node takes no more addresses.
	full bool
	// reported has the nodes with each address in their status, once reporters was called.
	reported map[netip.Addr][]string
}

// owner is an Egress with an address of a pool.
type owner struct{ uid, pool string }

func newAllocation(x *egressStore) *allocation {
	a := &allocation{egressStore: x, allocated: map[owner]netip.Addr{}, taken: map[netip.Addr]bool{}, free: map[*pool]*freeAddresses{}}
	mine := 0
	for addr, l := range x.leases {
		if l.Holder == x.nodes.local {
			mine++
		}
		if l.Owner == "" {
			continue
		}
		// Two nodes may have allocated an address each. The first one stays.
		o := owner{l.Owner, l.Pool}
		first, found := a.allocated[o]
		if !found || cmp.Or(cmp.Compare(l.Created, x.leases[first].Created), addr.Compare(first)) < 0 {
			a.allocated[o] = addr
		}
	}
	a.full = mine >= model.MaxEgressAddresses
	for _, e := range x.byID {
		if addr := a.addressOf(e); addr.IsValid() {
			a.taken[addr] = true
		}
	}
	for _, p := range x.projects.all {
		for _, addr := range p.compiled.Addresses {
			a.taken[addr.Address] = true // also while no node may have it
		}
	}
	return a
}

// addressOf returns the address that an Egress names, or has been allocated.
func (a *allocation) addressOf(e *egress) netip.Addr {
	if e.compiled.Any {
		return a.allocated[owner{e.compiled.Owner, e.compiled.Pool}]
	}
	return e.compiled.Address
}

// reporters returns the nodes with each address in their status, by name.
func (a *allocation) reporters() map[netip.Addr][]string {
	if a.reported == nil {
		a.reported = map[netip.Addr][]string{}
		for _, name := range slices.Sorted(maps.Keys(a.peers.byName)) {
			for _, addr := range a.peers.byName[name].addresses {
				if !slices.Contains(a.reported[addr], name) {
					a.reported[addr] = append(a.reported[addr], name)
				}
			}
		}
	}
	return a.reported
}

const (
	fieldPool = "spec.externalIPPool"
	// fromFiles is why there is no address without an API server.
	fromFiles = "nodes allocate addresses of a pool by an API server: without one, name address and node in spec.egressIP and spec.node"
)

// address sets the address of an Egress with a pool. It returns why it has none, with the field.
func (a *allocation) address(e *egress, out *model.EgressAddress) (field, reason string) {
	name := e.compiled.Pool
	if name == "" {
		return "", ""
	}
	p := a.poolOf(e)
	if e.compiled.Any && e.compiled.Owner != "" {
		out.Pool = &model.EgressPool{Name: name, Owner: e.compiled.Owner, Allocated: a.allocated[owner{e.compiled.Owner, name}]}
	}
	switch {
	case p == nil:
		return fieldPool, fmt.Sprintf("there is no %s", antrea.ID{Kind: e.id.Kind.PoolKind(), Name: name}.Ref())
	case p.compiled.Nodes == nil:
		return fieldPool, fmt.Sprintf("ExternalIPPool %s has a mistake", name)
	case !e.compiled.Any && !p.compiled.Contains(out.Address):
		return fieldAddress, fmt.Sprintf("%s is not in ExternalIPPool %s", out.Address, name)
	case !e.compiled.Any:
		return "", ""
	case a.leases == nil || out.Pool == nil:
		return fieldPool, fromFiles
	}
	if has := out.Pool.Allocated; has.IsValid() {
		if !p.compiled.Contains(has) {
			return fieldPool, fmt.Sprintf("ExternalIPPool %s no longer has %s, which belongs to this Egress: add it to the pool again, or delete the Egress and create it again", name, has)
		}
		out.Address = has
		return "", ""
	}
	out.Pool.Claim = a.next(p)
	if !out.Pool.Claim.IsValid() {
		return fieldPool, fmt.Sprintf("no address of ExternalIPPool %s is free", name)
	}
	candidacy := a.candidacy(e, e.compiled.Owner)
	if !a.full {
		out.Candidacy = candidacy
	}
	if e.candidates == 0 {
		return fieldPool, noCandidate
	}
	return fieldPool, fmt.Sprintf("no node has taken an address of ExternalIPPool %s yet", name)
}

// next returns a free address of a pool. Each call returns another one, and the zero Addr when none is left.
func (a *allocation) next(p *pool) netip.Addr {
	f := a.free[p]
	if f == nil {
		f = &freeAddresses{ranges: p.compiled.Ranges}
		a.free[p] = f
	}
	return f.next(func(addr netip.Addr) (usable, leased bool) {
		_, leased = a.leases[addr]
		return !a.taken[addr] && len(a.reporters()[addr]) == 0, leased
	}, a.reserved)
}

// reserved returns the last address of the pod CIDR or the Service addresses that have an address, or the zero Addr.
func (x *egressStore) reserved(a netip.Addr) netip.Addr {
	if owner, cidr := x.nodes.owns.podsAt(a); owner != nil {
		return netipx.PrefixLastIP(cidr)
	}
	if at := slices.IndexFunc(x.nodes.services, func(p netip.Prefix) bool { return p.Contains(a) }); at >= 0 {
		return netipx.PrefixLastIP(x.nodes.services[at])
	}
	return netip.Addr{}
}

// freeAddresses finds the free addresses of a pool, in order. Those with a Lease come last: it is of an Egress that is gone, or of a
// node that has not deleted it yet.
type freeAddresses struct {
	ranges []compile.PoolRange
	at     netip.Addr
	leased []netip.Addr
}

func (f *freeAddresses) next(usable func(netip.Addr) (usable, leased bool), reserved func(netip.Addr) (last netip.Addr)) netip.Addr {
	for len(f.ranges) > 0 {
		r := f.ranges[0]
		if !f.at.IsValid() {
			f.at = r.From()
		}
		for f.at.IsValid() && r.Contains(f.at) {
			a := f.at
			if last := reserved(a); last.IsValid() {
				f.at = last.Next()
				continue
			}
			f.at = a.Next()
			if ok, leased := usable(a); ok && !leased {
				return a
			} else if ok {
				f.leased = append(f.leased, a)
			}
		}
		f.ranges, f.at = f.ranges[1:], netip.Addr{}
	}
	if len(f.leased) == 0 {
		return netip.Addr{}
	}
	a := f.leased[0]
	f.leased = f.leased[1:]
	return a
}

// poolProblems returns the problems of all pools, in order.
func (x *egressStore) poolProblems() []model.Problem {
	var all []model.Problem
	for _, id := range slices.SortedFunc(maps.Keys(x.pools), antrea.ID.Compare) {
		all = append(all, x.pools[id].problems...)
	}
	return all
}

// PoolUsage says how many addresses an ExternalIPPool of felixlike's own API has, and how many of them Egresses have.
type PoolUsage struct {
	Name        string
	Total, Used int64
}

// mostAddresses bounds PoolUsage.Total: JSON numbers above it are not exact.
const mostAddresses = 1 << 53

func (x *egressStore) poolUsages() []PoolUsage {
	if len(x.pools) == 0 {
		return nil
	}
	used := map[string]map[netip.Addr]bool{}
	a := newAllocation(x)
	for _, e := range x.byID {
		if e.id.Kind.PoolKind() != antrea.KindOwnExternalIPPool || e.compiled.Pool == "" {
			continue
		}
		addr := a.addressOf(e)
		if p := x.poolOf(e); p == nil || !p.compiled.Contains(addr) {
			continue
		}
		if used[e.compiled.Pool] == nil {
			used[e.compiled.Pool] = map[netip.Addr]bool{}
		}
		used[e.compiled.Pool][addr] = true
	}
	var all []PoolUsage
	for _, id := range slices.SortedFunc(maps.Keys(x.pools), antrea.ID.Compare) {
		if id.Kind == antrea.KindOwnExternalIPPool {
			all = append(all, PoolUsage{Name: id.Name, Total: x.pools[id].compiled.Size(mostAddresses), Used: int64(len(used[id.Name]))})
		}
	}
	return all
}
