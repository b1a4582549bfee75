package felixlike

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/backend"
)

// writes makes an Apply of a receiver that only counts its writes into one of
// a stage.
func writes(apply func(context.Context) (int, error)) func(context.Context) (backend.Applied, error) {
	return func(ctx context.Context) (backend.Applied, error) {
		n, err := apply(ctx)
		return backend.Applied{Writes: n}, err
	}
}
