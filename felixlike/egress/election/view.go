package election

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// view is what a node knows.
type view struct {
	// wanted are the addresses that this node may hold.
	wanted map[netip.Addr]wish
	// leases are the Leases of addresses.
	leases map[netip.Addr]model.EgressLease
	// allocated has the owner of each address of a pool that an Egress has. Its Lease stays while no node holds it.
	allocated map[netip.Addr]string
	// used are the addresses that an Egress has, if their node is elected.
	used map[netip.Addr]bool
	// settled reports that wanted and allocated are the answer to these Leases. Until then, no Lease is deleted, and none is written for
	// an address of a pool: it may be of an Egress that gets its address by it.
	settled bool
}

// wish is an address that this node may hold.
type wish struct {
	model.Candidacy
	// owner and pool are those of an address of a pool. claim is set if it is to be allocated to the owner, which has none.
	owner, pool string
	claim       bool
}

// wishes takes the addresses that Egresses want. It reports whether one of them needs a Lease.
func (v *view) wishes(all []model.EgressAddress) (leased bool) {
	v.wanted, v.allocated, v.used = map[netip.Addr]wish{}, map[netip.Addr]string{}, map[netip.Addr]bool{}
	for _, e := range all {
		leased = leased || e.Leased || e.Pool != nil
		if e.Leased && e.Address.IsValid() {
			v.used[e.Address] = true
		}
		w := wish{}
		a := e.Address
		if e.Pool != nil {
			w.owner, w.pool = e.Pool.Owner, e.Pool.Name
			if e.Pool.Allocated.IsValid() {
				v.allocated[e.Pool.Allocated] = w.owner
			} else {
				a, w.claim = e.Pool.Claim, true
			}
		}
		if e.Candidacy == nil || !a.IsValid() || !e.Leased && !w.claim {
			continue
		}
		w.Candidacy = *e.Candidacy
		v.wanted[a] = w
	}
	return leased
}

// unwanted reports whether a node is to release an address that it holds. One that is to be allocated to another owner is released first.
func (v *view) unwanted(a netip.Addr, node string) bool {
	w, is := v.wanted[a]
	l := v.leases[a]
	return v.settled && (!is || w.claim && l.Holder == node && l.Owner != w.owner)
}
