package felixlike

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/backend"
)

// writes converts an Apply that only counts its writes to the Apply of a stage.
func writes(apply func(context.Context) (int, error)) func(context.Context) (backend.Applied, error) {
	return func(ctx context.Context) (backend.Applied, error) {
		n, err := apply(ctx)
		return backend.Applied{Writes: n}, err
	}
}
