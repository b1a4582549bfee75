package control

import (
	"context"
	"fmt"

	"github.com/felixlike/felixlike/internal/rootsocket"
)

// PID returns the number that the agent has among the caller's processes, which is
// another one than in its status where the agent is in a container.
func (c *Client) PID(ctx context.Context) (int, error) {
	pid, err := rootsocket.Owner(ctx, c.path)
	if err != nil {
		return 0, fmt.Errorf("agent at %s: %w", c.path, err)
	}
	return pid, nil
}
