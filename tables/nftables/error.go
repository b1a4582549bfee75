package nftables

import "github.com/felixlike/felixlike/tables"

// ObjectError is an error that concerns one object of the table.
type ObjectError = tables.ObjectError

// objectError is an ObjectError with what the driver does about it.
type objectError struct {
	ObjectError
	// unit is what can be set aside, and least the standing that it then has at
	// the highest.
	unit  unit
	least standing
	// removal tells that the unit is not wanted, and many that a message is about
	// more than one member.
	removal, many bool
}

func newError(object, name, rule string) objectError {
	return objectError{ObjectError: ObjectError{Object: object, Name: name, Rule: rule}}
}

// Unwrap returns the ObjectError.
func (e *objectError) Unwrap() error { return &e.ObjectError }
