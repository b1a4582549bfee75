// Package cli is `felixctl dump`, `felixctl snapshot` and `felixctl diff`. It holds
// flags, words and files, and finds out what the sides of a comparison are; what
// they are compared by is in cmd/felixctl/dump/compare. It is tested by golden output and, with
// real nodes, in the lab.
package cli

import "errors"

// ErrDifferent is what `felixctl diff` returns for sides that differ, after it has
// printed how.
var ErrDifferent = errors.New("the two differ")
