// Package panics turns a panic of a task into an error of that task. Other tasks
// go on.
//
// It knows no task. The caller repairs what the task left half done.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
)

// Error is a panic that was caught.
type Error struct {
	// Cause is the argument of panic, Stack the stack of its goroutine.
	Cause any
	Stack string
}

// Error returns the cause as text.
func (e *Error) Error() string {
	return fmt.Sprintf("panic: %v (a fault of this program: its log has the stack)", e.Cause)
}

// Catch turns a panic of the calling function into err. Defer it directly: recover
// works only in the deferred function itself.
func Catch(err *error) {
	if cause := recover(); cause != nil {
		*err = &Error{Cause: cause, Stack: string(debug.Stack())}
	}
}

// Guard calls f and returns its error, or an Error if f panics.
func Guard(f func() error) (err error) {
	defer Catch(&err)
	return f()
}

// Log adds panics to log records. The first record of a panic has the stack, later ones
// have the number of times. Two panics are the same if their stacks have the same places of
// the program. The zero value is ready, and safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	times map[string]int
}

// With returns the logger with stack or count of the panic, if the error is a panic.
func (l *Log) With(log *slog.Logger, err error) *slog.Logger {
	stack := Stack(err)
	if stack == "" {
		return log
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times == nil {
		l.times = map[string]int{}
	}
	at := places(stack)
	l.times[at]++
	if n := l.times[at]; n > 1 {
		return log.With("times", n)
	}
	return log.With("stack", stack)
}

// places returns the functions, files and lines of a stack, without the number of the
// goroutine and the arguments.
func places(stack string) string {
	var at strings.Builder
	for line := range strings.Lines(stack) {
		switch {
		case strings.HasPrefix(line, "goroutine "):
			continue
		case strings.HasPrefix(line, "\t"):
			line, _, _ = strings.Cut(line, " +0x")
		case strings.HasPrefix(line, "created by "):
			line, _, _ = strings.Cut(line, " in goroutine ")
		default:
			line = line[:max(0, strings.LastIndexByte(line, '('))]
		}
		at.WriteString(strings.TrimSpace(line) + "\n")
	}
	return at.String()
}

// Stack returns the stack of the panic, or "" if the error is none.
func Stack(err error) string {
	var p *Error
	if errors.As(err, &p) {
		return p.Stack
	}
	return ""
}
