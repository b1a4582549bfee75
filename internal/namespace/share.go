package namespace

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// share makes Dir a shared mount, as the first `ip netns add` does. The
// mount hides earlier mounts in the folder. So it must exist before
// the first namespace does.
func share() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	// iproute2 takes the same lock meanwhile.
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", Dir, err)
	}
	err = unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // it is no mount
		err = errors.Join(
			unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""),
			unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, ""))
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount: %w", Dir, err)
	}
	return nil
}

// maxCovers bounds the mounts of Dir that lie one over the other.
const maxCovers = 16

// removeCovered removes the file of a namespace that is mounted in the folder below
// Dir's own mount, where no path leads any more. It takes the covers off in a private
// mount namespace; the kernel unmounts the file everywhere else when it is removed.
func removeCovered(path string) error {
	done := make(chan error, 1)
	go func() {
		// The thread ends with the goroutine, and its mount namespace with it.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("make a mount namespace: %w", err)
			}
			if err := unix.Mount("", "/", "none", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
				return fmt.Errorf("make mounts private: %w", err)
			}
			for range maxCovers {
				if err := unmount(path); err != nil {
					return err
				}
				if err := os.Remove(path); !errors.Is(err, unix.EBUSY) {
					return err
				}
				if err := unix.Unmount(Dir, unix.MNT_DETACH); err != nil {
					return fmt.Errorf("%s is mounted where it cannot be reached: %w", path, err)
				}
			}
			return fmt.Errorf("%s is below more than %d mounts", path, maxCovers)
		}()
	}()
	return <-done
}
