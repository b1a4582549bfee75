// Package cli is `felixctl dump`, `felixctl snapshot` and `felixctl diff`. It holds
// flags, words and files, and resolves the sides of a comparison; package
// cmd/felixctl/dump/compare compares them. It is tested by golden output and, with
// real nodes, in the lab.
package cli

import "errors"

// ErrDifferent is the error of `felixctl diff` for sides that differ, after the
// differences are printed.
var ErrDifferent = errors.New("the two differ")
