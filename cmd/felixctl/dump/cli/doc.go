// Package cli is `felixctl dump`, `felixctl snapshot`, `felixctl diff` and `felixctl prove`. It holds
// flags, words and files, and resolves the sides of a comparison; package
// cmd/felixctl/dump/compare compares them, and cmd/felixctl/prove proves them equal. It is tested by golden output and, with
// real nodes, in the lab.
package cli

import "errors"

// ErrDifferent is the error of `felixctl diff` and `prove` for sides that differ, after the
// differences are printed.
var ErrDifferent = errors.New("the two differ")

// ErrPartly is the error of `felixctl prove` for sides that do not differ where they were compared, after the certificate is printed.
var ErrPartly = errors.New("proved in part: the certificate names what was not compared")
