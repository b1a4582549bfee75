package kubernetes

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
)

// klogger hands what client-go logs to our log, one level lower: what it calls an
// error it tries again, and what comes of it is told by contact.
func klogger(log *slog.Logger) logr.Logger { return logr.FromSlogHandler(lower{log.Handler()}) }

// lower is a handler for which nothing matters much.
type lower struct{ slog.Handler }

// Enabled reports whether messages for debugging are wanted, and the message is
// not one of client-go's own details: the bodies of requests are among them.
func (l lower) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= -2 && l.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle hands a message on as one for debugging. What client-go calls an error comes
// here without a question.
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
