package tables

import (
	"context"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// Table is the contract between the managers and a netfilter driver. Its setters only record the desired
// state; Apply programs the difference.
//
// A driver is used from one goroutine. It reads the kernel's state on its first Apply and after a failure,
// never in the steady state, and writes nothing when there is nothing to change. It removes everything else
// from its private table, and never touches anything outside.
//
// If the kernel refuses one object, the driver programs the others: see Refusal.
// programmed: see Refusal.
type Table interface {
	// UpdateChain wants the chain to be exactly as given.
	UpdateChain(Chain)
	// RemoveChain no longer wants the chain. A chain that wanted rules still
	// refer to must not be removed.
	RemoveChain(name string)
	// Apply programs the desired state, in one transaction. Quarantined objects are no error but listed in
	// the Result. After an error nothing has changed except what the Result says.
	Apply(ctx context.Context) (Result, error)
	// Invalidate makes the next Apply read the kernel's state again in full.
	Invalidate()
}

// VerdictMaps is the dispatch contract of drivers with verdict maps: wanted
// entries from an address to a verdict (Accept, Drop, Jump or Goto).
type VerdictMaps interface {
	// CreateMap wants a map of the family; it is empty until entries come.
	CreateMap(name string, family model.Family)
	// SetVerdict wants the entry, replacing one with the same address.
	SetVerdict(name string, addr netip.Addr, verdict Action)
	// RemoveVerdict no longer wants the entry.
	RemoveVerdict(name string, addr netip.Addr)
}

// NumberMaps is the contract of drivers with maps from addresses to numbers (see MatchGrant).
type NumberMaps interface {
	// CreateNumberMap wants a map of the kind Addresses or Networks; it is empty until entries come.
	CreateNumberMap(name string, kind model.GroupKind, family model.Family)
	// SetNumber wants the entry, replacing one with the same member.
	SetNumber(name string, m model.Member, n Number)
	// RemoveNumber no longer wants the entry.
	RemoveNumber(name string, m model.Member)
}
