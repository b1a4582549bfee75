package plugin

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errPluginNotAvailable is CNI's code for a STATUS that says: no ADD would
// succeed, and attached sandboxes are not affected.
const errPluginNotAvailable = 50

// cniError makes one of CNI's errors of the agent's.
func (c *config) cniError(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unimplemented:
		return types.NewError(types.ErrTryAgainLater, "the agent does not speak this plugin's version of the API: one of them is about to be upgraded", s.Message())
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.ResourceExhausted:
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("felixlike's agent at %s: %s", c.Socket, s.Message()), "")
	case codes.InvalidArgument:
		return types.NewError(types.ErrInvalidEnvironmentVariables, s.Message(), "")
	}
	return types.NewError(types.ErrInternal, s.Message(), "")
}
