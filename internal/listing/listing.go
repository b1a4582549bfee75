// Package listing reads lists of the kernel's network objects.
package listing

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// maxInterrupted bounds how often a list is read again.
const maxInterrupted = 100

// Whole reads a list again while the kernel says that it was interrupted: others change
// interfaces, addresses or routes of the node meanwhile.
func Whole[T any](list func() ([]T, error)) ([]T, error) {
	all, err := list()
	for i := 0; i < maxInterrupted && errors.Is(err, netlink.ErrDumpInterrupted); i++ {
		all, err = list()
	}
	return all, err
}
