package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/internal/socketapi"
)

// codeOf returns the code of an error. An unexpected error gets the code for "try
// again": the next try may succeed, and a useless try does no harm.
func codeOf(err error) socketapi.Code {
	var refused *socketapi.Error
	switch {
	case errors.As(err, &refused):
		return refused.Code
	case errors.Is(err, errSandbox), errors.Is(err, errOwnNamespace):
		return socketapi.Invalid
	case errors.Is(err, errNotAsAdded):
		return socketapi.Failed
	case errors.Is(err, errNotReady):
		return socketapi.NotReady
	}
	return socketapi.Unavailable
}

// errNotReady says that Add would not succeed.
var errNotReady = errors.New("not ready")

// Status fails unless Add would succeed.
func (s *Server) Status(ctx context.Context, _ *protocol.Empty) (protocol.Empty, error) {
	err := s.opts.Agent.Available(ctx)
	if err == nil {
		err = s.ipam.installed()
	}
	if err == nil {
		_, err = s.db.Attachments(ctx)
	}
	if err != nil {
		return protocol.Empty{}, fmt.Errorf("%w: %w", errNotReady, err)
	}
	return protocol.Empty{}, nil
}
