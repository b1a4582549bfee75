package nftables

import (
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// ObjectError is an error that concerns one object of the table.
type ObjectError = tables.ObjectError

// ErrUnnamed is the error of Options.Fault for a refused transaction without a named message, as when a
// commit fails.
var ErrUnnamed = kernel.ErrUnnamed
