package iptables

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// failure is a restore that the tool has refused: nothing has changed in the
// table at fault, nor in those behind it.
type failure struct {
	family model.Family
	// fresh tells that the state it was planned from had just been read.
	fresh bool
	// busy tells that another program held the lock.
	busy bool
	// blames tells whether about is what the tool has named as the fault.
	blames bool
	about  about
	err    *exitError
}

// Error gives the tool's own words.
func (f *failure) Error() string { return f.err.Error() }

// Unwrap returns the error of the program.
func (f *failure) Unwrap() error { return f.err }

// lockTaken is in the message of a program that has waited for the lock in vain.
// Its exit code, 4, says less: the nft variant has it for whatever the kernel
// refuses.
const lockTaken = "holding the xtables lock"

// failed reads what the tool says of a script.
func failed(err error, f model.Family, s *script, fresh bool) error {
	var exit *exitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("write the tables of IPv%s: %w", f, err)
	}
	out := &failure{family: f, fresh: fresh, err: exit}
	out.busy = strings.Contains(exit.stderr, lockTaken)
	number, _ := lineNumber(exit.stderr)
	out.about, out.blames = s.concerns(number)
	return out
}

// lineNumber returns the number of the line that the tool complains of, as in
// "line 7 failed", "Error occurred at line: 7", "line 7: RULE_APPEND failed".
func lineNumber(message string) (int, bool) {
	for rest := message; ; {
		_, after, ok := strings.Cut(rest, "line")
		if !ok {
			return 0, false
		}
		rest = after
		digits := strings.TrimLeft(rest, ": ")
		end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(digits)
		}
		if n, err := strconv.Atoi(digits[:end]); err == nil {
			return n, true
		}
	}
}

// reason returns the tool's words on what it has complained of first, without
// its name and its offers of help, on one line.
func (e *exitError) reason() string {
	var out []string
	for line := range strings.Lines(e.stderr) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "Try `") || strings.HasPrefix(line, "Error occurred at line") || strings.HasPrefix(line, "# Warning") {
			continue
		}
		// "iptables-restore v1.8.9 (legacy): the message", or without a version.
		for _, end := range []string{"(legacy):", "(nf_tables):", "-restore:"} {
			if head, rest, ok := strings.Cut(line, end); ok && strings.Contains(head+end, "tables-") {
				line = strings.TrimSpace(rest)
			}
		}
		if number, ok := lineNumber(line); ok {
			// "line 7 failed: why", "line 7: what failed (why): where"
			_, what, _ := strings.Cut(line, strconv.Itoa(number))
			what = strings.TrimLeft(strings.TrimPrefix(what, " failed"), ": .")
			if what == "" {
				what = "the kernel refuses it and gives no reason"
			}
			return what
		}
		if line != "" {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		return fmt.Sprintf("%s: exit code %d", e.program, e.code)
	}
	return strings.Join(out, "; ")
}
