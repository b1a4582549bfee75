package nftables

import "github.com/felixlike/felixlike/tables"

// ObjectError is an error that concerns one object of the table.
type ObjectError = tables.ObjectError
