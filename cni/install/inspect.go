package install

import (
	"context"
	"errors"
)

// Inspect looks at the node as Install does, and changes nothing: it loads no
// module and puts nothing in place. It goes on where something is missing.
// Directories of network configurations are looked at if there is a ConfDir.
func (o Options) Inspect(ctx context.Context, tell func(Finding)) {
	// The findings contain the error.
	_ = o.check(ctx, tell)
	for _, f := range tools(o.Backend) {
		tell(f)
	}
}

// ErrMissing says that a check found something missing.
var ErrMissing = errors.New("something is missing")
