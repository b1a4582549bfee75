//go:build !unix

package rootsocket

import (
	"errors"
	"os"
)

// acquire returns an error: no agent runs here, but felixctl has this package.
func acquire(string) (*os.File, error) { return nil, errors.New("listening for root needs Linux") }
