// Package panics makes a panic the error of the one task that met it, at the edge of
// the task: all else goes on.
//
// It knows no task. What a task has changed before is its caller's to look after.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Error is a panic that was caught.
type Error struct {
	// Cause is what was given to panic, Stack where.
	Cause any
	Stack string
}

// Error says what the panic was.
func (e *Error) Error() string {
	return fmt.Sprintf("panic: %v (a fault of this program: its log has the stack)", e.Cause)
}

// Catch makes a panic of the function that defers it the error. It has to be deferred
// itself.
func Catch(err *error) {
	if cause := recover(); cause != nil {
		*err = &Error{Cause: cause, Stack: string(debug.Stack())}
	}
}

// Guard calls f and returns its error, or its panic as one.
func Guard(f func() error) (err error) {
	defer Catch(&err)
	return f()
}

// Log returns a logger that tells where a panic was, if the error is one.
func Log(log *slog.Logger, err error) *slog.Logger {
	if stack := Stack(err); stack != "" {
		return log.With("stack", stack)
	}
	return log
}

// Stack returns where a panic was, or "" if the error is none.
func Stack(err error) string {
	var p *Error
	if errors.As(err, &p) {
		return p.Stack
	}
	return ""
}
