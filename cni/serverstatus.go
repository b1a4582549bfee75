package cni

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/felixlike/felixlike/cni/cniv1"
)

// coded gives an error the gRPC code that the plugin understands. An unexpected
// error gets the code for "try again": it may be gone at the next try, and a useless
// try does no harm.
func coded(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Unavailable
	switch {
	case errors.Is(err, errSandbox), errors.Is(err, errOwnNamespace):
		code = codes.InvalidArgument
	case errors.Is(err, errNotAsAdded):
		code = codes.Internal
	case errors.Is(err, errNotReady):
		code = codes.FailedPrecondition
	}
	return status.Error(code, err.Error())
}

// errNotReady says that Add would not succeed.
var errNotReady = errors.New("not ready")

// Status implements cniv1.CNIServer.
func (s *Server) Status(ctx context.Context, _ *cniv1.StatusRequest) (*cniv1.StatusResponse, error) {
	err := s.opts.Agent.Available(ctx)
	if err == nil {
		err = s.ipam.installed()
	}
	if err == nil {
		_, err = s.db.Attachments(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotReady, err)
	}
	return &cniv1.StatusResponse{}, nil
}
