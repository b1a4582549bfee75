package iptables

import (
	"fmt"
	"strconv"
	"strings"
)

// exitError has the output of a program that failed.
type exitError struct {
	program string
	code    int
	stderr  string
}

// Error returns the message of the program.
func (e *exitError) Error() string {
	return fmt.Sprintf("%s: exit code %d: %s", e.program, e.code, e.stderr)
}

// lineNumber returns the number of the line that a message names, as in
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

// reason returns the tool's first complaint on one line, without the tool's name and
// without its offers of help.
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
