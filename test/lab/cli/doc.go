// Package cli is `felixctl lab`: commands, tables and the demo. It holds the code
// for terminals and files; package lab does the work. It is tested
// by golden output and, with real labs, by test/e2e.
package cli

import (
	"errors"
	"fmt"
)

// Exit codes of the commands.
const (
	ExitOK = 0
	// ExitDisagreement: everything ran, but not all is as expected.
	ExitDisagreement = 1
	// ExitFailure: wrong usage, or something could not be done.
	ExitFailure = 2
)

// ErrDisagreement is returned by commands that found something other than
// expected, after they have printed it.
var ErrDisagreement = errors.New("not all is as expected")

// ErrBlocked is the error of `probe`, with ExitDisagreement, if nothing got
// through; the result is printed.
var ErrBlocked = errors.New("blocked")

// ExitCode returns the exit code for a command's error.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrDisagreement), errors.Is(err, ErrBlocked):
		return ExitDisagreement
	}
	return ExitFailure
}

// plural returns "1 probe" or "2 probes".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
