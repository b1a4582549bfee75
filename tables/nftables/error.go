package nftables

import (
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// ObjectError is an error that concerns one object of the table.
type ObjectError = tables.ObjectError

// ErrUnnamed is what Options.Fault returns for a transaction that the kernel refuses
// without naming one of its messages, as it does when a commit fails.
var ErrUnnamed = kernel.ErrUnnamed
