package socketapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/felixlike/felixlike/internal/panics"
)

// Get is a call without a body.
func Get[Out any](path string, f func(ctx context.Context, query url.Values) (Out, error)) Route {
	return Route{method: http.MethodGet, path: path, answer: func(ctx context.Context, _ *Server, _ http.ResponseWriter, r *http.Request) (reply, request any, err error) {
		defer panics.Catch(&err)
		reply, err = f(ctx, r.URL.Query())
		return reply, nil, err
	}}
}

// Post is a call with a JSON value as its body. An empty body is the zero value.
func Post[In, Out any](path string, f func(ctx context.Context, in *In) (Out, error)) Route {
	return Route{method: http.MethodPost, path: path, answer: func(ctx context.Context, s *Server, w http.ResponseWriter, r *http.Request) (reply, request any, err error) {
		defer panics.Catch(&err)
		in := new(In)
		if err := s.read(w, r, in); err != nil {
			return nil, nil, err
		}
		request = in
		reply, err = f(ctx, in)
		return reply, request, err
	}}
}

// Stream is a GET that writes its answer itself. A path that ends with a slash stands
// for all paths below it. An error is answered: f returns none after it began to write.
func Stream(path string, f func(w http.ResponseWriter, r *http.Request) error) Route {
	return Route{method: http.MethodGet, path: path, stream: f}
}

// Raw makes a Stream of a handler.
func Raw(f http.HandlerFunc) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		f(w, r)
		return nil
	}
}

// read decodes the one JSON value of a request. It reads up to the end: net/http watches
// for the caller's end only then.
func (s *Server) read(w http.ResponseWriter, r *http.Request, into any) error {
	deadline := http.NewResponseController(w)
	if err := deadline.SetReadDeadline(time.Now().Add(s.readTimeout)); err != nil {
		return err
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, s.config.MaxBody))
	if s.config.Strict {
		decoder.DisallowUnknownFields()
	}
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return badBody(err)
	}
	if _, err := decoder.Token(); err == nil {
		return Refuse(Invalid, "request body: more than one JSON value")
	} else if !errors.Is(err, io.EOF) {
		return badBody(err)
	}
	return deadline.SetReadDeadline(time.Time{})
}

func badBody(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return Refuse(TooLarge, "request body: more than %d bytes", large.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return Refuse(Deadline, "request body: it does not arrive: %w", err)
	}
	return Refuse(Invalid, "request body: %w", err)
}
