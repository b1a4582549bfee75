package plugin

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/felixlike/felixlike/internal/socketapi"
)

// errPluginNotAvailable is CNI's code for a STATUS that says: no ADD would
// succeed, and attached sandboxes are not affected.
const errPluginNotAvailable = 50

// cniError converts the agent's error to one of CNI's.
func (c *config) cniError(err error) error {
	if err == nil {
		return nil
	}
	var refused *socketapi.Error
	switch {
	case errors.Is(err, socketapi.ErrNotHTTP):
		return otherVersion(err)
	case !errors.As(err, &refused):
		return c.tryAgain(err)
	}
	switch refused.Code {
	case socketapi.Unavailable, socketapi.Deadline, socketapi.Canceled, socketapi.TooLarge:
		return c.tryAgain(err)
	case socketapi.Invalid:
		return types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(), "")
	case socketapi.Failed, socketapi.NotReady:
		return types.NewError(types.ErrInternal, err.Error(), "")
	}
	// The agent does not know this call, or its code is unknown to this plugin.
	return otherVersion(err)
}

func (c *config) tryAgain(err error) error {
	return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("felixlike's agent at %s: %v", c.Socket, err), "")
}

func otherVersion(err error) error {
	return types.NewError(types.ErrTryAgainLater,
		"the agent does not speak this plugin's version of the API: one of them is about to be upgraded; try again later", err.Error())
}
