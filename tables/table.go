package tables

import (
	"context"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// Table is the contract between the managers and a netfilter driver. Its
// setters only record what is wanted; Apply programs the difference.
//
// A driver is used from one goroutine. It reads the kernel's state on its
// first Apply and after a failure, never in the steady state, and writes
// nothing when there is nothing to change. What is in its private table and
// not wanted is removed; what is outside is never touched.
//
// One object that the kernel refuses does not keep the others from being
// programmed: see Refusal.
type Table interface {
	// UpdateChain wants the chain to be exactly as given.
	UpdateChain(Chain)
	// RemoveChain no longer wants the chain. A chain that wanted rules still
	// refer to must not be removed.
	RemoveChain(name string)
	// Apply programs what is wanted, in one transaction. Objects that are set
	// aside are no error but listed in the Result; an error means that nothing
	// changed but what the Result says.
	Apply(ctx context.Context) (Result, error)
	// Invalidate forgets what the kernel is known to hold, so that the next
	// Apply reads it again in full.
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
