package iptables

import (
	"errors"
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// failure is a restore that the tool has refused: it has changed neither the table at
// fault nor the tables behind it.
type failure struct {
	family model.Family
	// fresh says that the state it was planned from had just been read.
	fresh bool
	// busy says that another program held the lock.
	busy bool
	// named says that the tool has named the faulty line, which is of about.
	named bool
	about about
	err   *exitError
}

// Error returns the tool's message.
func (f *failure) Error() string { return f.err.Error() }

// Unwrap returns the error of the program.
func (f *failure) Unwrap() error { return f.err }

// lockTaken is in the message of a program that has waited for the lock in vain.
// Its exit code, 4, does not show it: the nft variant has it for all that the kernel refuses.
const lockTaken = "holding the xtables lock"

// failed returns the failure of a script, by the message of the tool.
func failed(err error, f model.Family, s *script, fresh bool) error {
	var exit *exitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("write the tables of IPv%s: %w", f, err)
	}
	out := &failure{family: f, fresh: fresh, err: exit}
	out.busy = strings.Contains(exit.stderr, lockTaken)
	number, _ := lineNumber(exit.stderr)
	out.about, out.named = s.concerns(number)
	return out
}
