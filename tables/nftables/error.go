package nftables

import (
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// ObjectError is an error that concerns one object of the table.
type ObjectError = tables.ObjectError

// fault is a refused object with what the driver does about it.
type fault struct {
	kernel.ObjectError
	// least is the highest state that the unit may have from now on.
	least standing
	// removal says that the unit is not wanted: its deletion is refused.
	removal bool
}
