package socketapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Code is the kind of a refusal. Callers branch on it.
type Code string

// The codes. A client may meet others, of a later server.
const (
	// Invalid: the same request will always fail.
	Invalid Code = "invalid"
	// UnknownVersion, UnknownPath and WrongMethod: the server has no such call.
	UnknownVersion Code = "unknown-version"
	UnknownPath    Code = "unknown-path"
	WrongMethod    Code = "wrong-method"
	// TooLarge: the request has more bytes than the server reads.
	TooLarge Code = "too-large"
	// Deadline: the caller's time is over.
	Deadline Code = "deadline"
	// Canceled: the server ends.
	Canceled Code = "canceled"
	// Unavailable: it may succeed at the next try.
	Unavailable Code = "unavailable"
	// NotReady: the server cannot do this now.
	NotReady Code = "not-ready"
	// Failed is every other failure.
	Failed Code = "failed"
)

// status returns the HTTP status of a refusal.
func (c Code) status() int {
	switch c {
	case Invalid:
		return http.StatusBadRequest
	case UnknownVersion, UnknownPath:
		return http.StatusNotFound
	case WrongMethod:
		return http.StatusMethodNotAllowed
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case Deadline:
		return http.StatusGatewayTimeout
	case Canceled, Unavailable, NotReady:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// Error is a refusal: on the server the one to answer, in the client the answer.
type Error struct {
	Code Code
	Err  error
}

// Refuse returns an Error.
func Refuse(code Code, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Error returns the reason.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped reason.
func (e *Error) Unwrap() error { return e.Err }

// codeOf returns the code of an error of a server.
func codeOf(err error) Code {
	var refused *Error
	switch {
	case errors.As(err, &refused):
		return refused.Code
	case errors.Is(err, context.DeadlineExceeded):
		return Deadline
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Failed
}

// ErrorBody is the body of a refusal.
type ErrorBody struct {
	Error string `json:"error"`
	Code  Code   `json:"code,omitempty"`
}

// ErrorOf returns the refusal in an answer. The code is empty if the answer has none.
func ErrorOf(status int, body []byte) error {
	var reply ErrorBody
	if err := json.Unmarshal(body, &reply); err != nil || reply.Error == "" {
		return Refuse("", "unexpected answer %d %s", status, http.StatusText(status))
	}
	if reply.Code == Deadline || status == http.StatusGatewayTimeout {
		return Refuse(Deadline, "%s (%w)", reply.Error, context.DeadlineExceeded)
	}
	return Refuse(reply.Code, "%s", reply.Error)
}
