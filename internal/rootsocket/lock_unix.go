//go:build unix

package rootsocket

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// acquire locks a file, which it makes if there is none. The lock ends with the process.
func acquire(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.New("another agent is running with this run directory")
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return lock, nil
}
