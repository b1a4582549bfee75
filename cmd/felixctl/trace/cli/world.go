package cli

import (
	"context"

	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
)

// world is the state that was read, with the options of the command.
type world struct {
	*cluster.World
	options *options
}

func (o *options) readWorld(ctx context.Context) (*world, error) {
	nodes, silent, err := o.nodes(ctx)
	if err != nil {
		return nil, err
	}
	w, err := cluster.Read(ctx, nodes, silent)
	return &world{w, o}, err
}
