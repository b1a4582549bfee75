package uplink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// In is the run directory of a node's Open vSwitch. The agent, the supervisor of Open vSwitch and the
// removal from the node all move the uplink's addresses. They must name the same directory: it has their
// lock, and their journal (journal.go).
type In string

const (
	lockFile    = "felixlike-uplink.lock"
	journalFile = "felixlike-uplink.json"
	// lockTimeout bounds the wait for another mover, which may have been stopped (SIGSTOP).
	lockTimeout = 5 * time.Second
	lockPause   = 10 * time.Millisecond
)

// locked runs do while no other mover of the node runs. Two at once lose routes: one replaces a route that
// the other then deletes.
func (in In) locked(do func() error) error {
	lock, err := os.OpenFile(in.file(lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return do() // no directory, so no Open vSwitch and no other mover
	}
	if err != nil {
		return fmt.Errorf("open the uplink's lock: %w", err)
	}
	// The file stays: if it were removed, two movers could hold locks of that name.
	defer lock.Close()
	for end := time.Now().Add(lockTimeout); ; time.Sleep(lockPause) {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return do()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		if time.Now().After(end) {
			return fmt.Errorf("another process has held %s for %s: it moves the uplink's addresses", lock.Name(), lockTimeout)
		}
	}
}

func (in In) file(name string) string { return filepath.Join(string(in), name) }
