package grants

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// addresses are the single addresses of groups, with their identities.
type addresses struct {
	identities *identities
	// groups has the groups of an address, also those that no rule has.
	groups     map[netip.Addr][]model.GroupID
	programmed map[netip.Addr]*identity
	dirty      map[netip.Addr]struct{}
}

func newAddresses(s *identities) *addresses {
	return &addresses{identities: s, groups: map[netip.Addr][]model.GroupID{}, programmed: map[netip.Addr]*identity{}, dirty: map[netip.Addr]struct{}{}}
}

// set notes whether a group has an address.
func (a *addresses) set(addr netip.Addr, id model.GroupID, has bool) {
	groups := with(a.groups[addr], id, has)
	if len(groups) > 0 {
		a.groups[addr] = groups
	} else {
		delete(a.groups, addr)
	}
	a.dirty[addr] = struct{}{}
}

// settle programs the identities of addresses that have changed.
func (a *addresses) settle(active func(model.GroupID) bool, maps tables.NumberMaps) {
	order := make([]netip.Addr, 0, len(a.dirty))
	for addr := range a.dirty {
		order = append(order, addr)
	}
	slices.SortFunc(order, netip.Addr.Compare)
	a.dirty = map[netip.Addr]struct{}{} // as ledger.changed
	for _, addr := range order {
		groups := slices.DeleteFunc(slices.Clone(a.groups[addr]), func(id model.GroupID) bool { return !active(id) })
		was, now := a.programmed[addr], a.identities.hold(groups)
		a.identities.release(was)
		if was == now {
			continue
		}
		name, m := rules.IdentityMap(model.FamilyOf(addr)), model.AddressMember(addr)
		if now == nil {
			delete(a.programmed, addr)
			maps.RemoveNumber(name, m)
			continue
		}
		a.programmed[addr] = now
		maps.SetNumber(name, m, now.number)
	}
}
