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

// Whole reads a list, and reads it again if the kernel says that another program's change
// of interfaces, addresses or routes interrupted it.
func Whole[T any](list func() ([]T, error)) ([]T, error) {
	began := time.Now()
	all, err := list()
	for i := 0; errors.Is(err, netlink.ErrDumpInterrupted) && (i < minInterrupted || i < maxInterrupted && time.Since(began) < patience); i++ {
		all, err = list()
	}
	return all, err
}
