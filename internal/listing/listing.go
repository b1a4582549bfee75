// Package listing reads lists of the kernel's network objects.
package listing

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// maxInterrupted bounds how often a list is read again. A list of many routes takes
	// long: beyond minInterrupted, patience bounds the time too.
	minInterrupted, maxInterrupted = 3, 100
	patience                       = time.Second
)

// Whole reads a list again while the kernel says that it was interrupted: others change
// interfaces, addresses or routes of the node meanwhile.
func Whole[T any](list func() ([]T, error)) ([]T, error) {
	began := time.Now()
	all, err := list()
	for i := 0; errors.Is(err, netlink.ErrDumpInterrupted) && (i < minInterrupted || i < maxInterrupted && time.Since(began) < patience); i++ {
		all, err = list()
	}
	return all, err
}
