package install

import (
	"context"
	"errors"
)

// Inspect checks the node as Install does, and changes nothing: it loads no module and
// installs no file. It runs all checks even if one fails. It reads the directory of network
// configurations if ConfDir is set.
func (o Options) Inspect(ctx context.Context, report func(Finding)) {
	// The findings contain the error.
	_ = o.check(ctx, report)
	for _, f := range tools(o.Backend) {
		report(f)
	}
}

// ErrMissing says that a check found something missing.
var ErrMissing = errors.New("something is missing")
