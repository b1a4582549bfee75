package leases

import (
	"context"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Said logs each kind of failure once, and its end.
type Said struct {
	Log *slog.Logger
	// What cannot be done, and Effect of that.
	What, Effect string
	// failed is the kind of the last failure, "" if the last try went well.
	failed string
}

// Note takes down how a try went.
func (s *Said) Note(ctx context.Context, err error) {
	if err == nil {
		if s.failed != "" {
			s.Log.Info("works again: " + s.What)
		}
		s.failed = ""
		return
	}
	kind := "unreachable"
	if reason := apierrors.ReasonForError(err); reason != "" {
		kind = string(reason)
	}
	if ctx.Err() != nil && kind == "unreachable" {
		return // it was we who gave up
	}
	level := slog.LevelWarn
	if kind == s.failed {
		level = slog.LevelDebug
	}
	s.failed = kind
	s.Log.Log(ctx, level, "cannot "+s.What+": it is tried again; "+s.Effect, "error", err)
}
