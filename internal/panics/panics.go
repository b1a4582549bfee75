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

// Log returns a logger with the stack of the panic, if the error is one.
func Log(log *slog.Logger, err error) *slog.Logger {
	if stack := Stack(err); stack != "" {
		return log.With("stack", stack)
	}
	return log
}

// Stack returns the stack of the panic, or "" if the error is none.
func Stack(err error) string {
	var p *Error
	if errors.As(err, &p) {
		return p.Stack
	}
	return ""
}
