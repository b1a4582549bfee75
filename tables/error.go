package tables

import "fmt"

// ObjectError is an error that concerns one object of a table: a request for it is not valid, or the kernel
// refused it.
type ObjectError struct {
	// Object is the kind of the object: "table", "chain", "set" or "map".
	Object string
	Name   string
	// Rule says which rule of a chain is meant, as "rule 2 (comment)", or
	// which member of a set; it is empty if the object itself is.
	Rule string
	Err  error
}

// Error names the object before the reason.
func (e *ObjectError) Error() string {
	if e.Rule == "" {
		return fmt.Sprintf("%s %s: %v", e.Object, e.Name, e.Err)
	}
	return fmt.Sprintf("%s %s: %s: %v", e.Object, e.Name, e.Rule, e.Err)
}

// Unwrap returns the reason.
func (e *ObjectError) Unwrap() error { return e.Err }

// RuleName names the rule at an index of its chain for people.
func RuleName(i int, r Rule) string {
	if r.Comment == "" {
		return fmt.Sprintf("rule %d (%s)", i, r)
	}
	return fmt.Sprintf("rule %d (%s, %s)", i, r, r.Comment)
}
