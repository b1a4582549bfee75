package install

import (
	"context"
	"errors"
)

// Inspect looks at the node as Install does, and changes nothing: it loads no
// module and puts nothing in place. It goes on where something is missing.
// Directories of network configurations are looked at if there is a ConfDir.
func (o Options) Inspect(ctx context.Context, tell func(Finding)) {
	// The findings say what the error does.
	_ = o.check(ctx, tell)
	for _, f := range tools(o.Backend) {
		tell(f)
	}
}

// ErrMissing is what commands return that have found something missing.
var ErrMissing = errors.New("something is missing")
