package policystatus

import (
	"context"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// said logs each kind of failure once, and its end.
type said struct {
	log  *slog.Logger
	what string
	// failed is the kind of the last failure, "" if the last try went well.
	failed string
}

// note takes down how a try went.
func (s *said) note(ctx context.Context, err error) {
	if err == nil {
		if s.failed != "" {
			s.log.Info("works again: " + s.what)
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
	s.log.Log(ctx, level, "cannot "+s.what+": it is tried again; policy is in force without it", "error", err)
}
