package kubernetes

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
)

// klogger hands client-go's messages to our log as debug messages: client-go retries after its errors, and
// contact reports the failures that last.
func klogger(log *slog.Logger) logr.Logger { return logr.FromSlogHandler(lower{log.Handler()}) }

// lower is a handler for which nothing matters much.
type lower struct{ slog.Handler }

// Enabled reports whether messages for debugging are wanted, and the message is
// not one of client-go's own details: the bodies of requests are among them.
func (l lower) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= -2 && l.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle hands a message on as a debug message. client-go logs its errors without asking Enabled.
func (l lower) Handle(ctx context.Context, r slog.Record) error {
	if !l.Handler.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	r.Level = slog.LevelDebug
	return l.Handler.Handle(ctx, r)
}

// WithAttrs and WithGroup keep it so.
func (l lower) WithAttrs(attrs []slog.Attr) slog.Handler { return lower{l.Handler.WithAttrs(attrs)} }

// WithGroup keeps it so.
func (l lower) WithGroup(name string) slog.Handler { return lower{l.Handler.WithGroup(name)} }
