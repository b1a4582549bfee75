package ovsdaemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// foreignEvery is the pause between two looks for daemons of another supervisor.
	foreignEvery = 100 * time.Millisecond
	// nameForeignAfter is the time between two log entries about them.
	nameForeignAfter = 30 * time.Second
)

// waitForeign waits until no daemon of another process namespace serves dir, or until ctx
// ends. In Kubernetes these daemons belong to another pod, which is ending: that of an older
// version, or one that was deleted by force. StopLeftover cannot end them, and a second
// ovsdb-server would take their sockets away.
func waitForeign(ctx context.Context, dir string, log *slog.Logger) error {
	began, named := time.Now(), time.Time{}
	for {
		var all []string
		for _, name := range []string{"ovs-vswitchd", "ovsdb-server"} {
			foreign, err := isForeign(pidFile(dir, name))
			if err != nil {
				return fmt.Errorf("another %s: %w", name, err)
			}
			if foreign {
				all = append(all, name)
			}
		}
		if len(all) == 0 {
			if !named.IsZero() {
				log.Info("the other Open vSwitch has ended", "after", time.Since(began).Round(time.Millisecond))
			}
			return nil
		}
		if time.Since(named) > nameForeignAfter {
			named = time.Now()
			log.Warn("ANOTHER OPEN VSWITCH serves this directory: waiting until it ends, as the container ovs of a pod of an older version does when its pod is replaced",
				"directory", dir, "daemons", strings.Join(all, ", "))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(foreignEvery):
		}
	}
}

// isForeign reports whether a live daemon of another process namespace has locked its pid
// file. The kernel names the owner of the lock by its id in this process's namespace, or 0;
// the file has its id in the daemon's own.
func isForeign(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return false, fmt.Errorf("lock of %s: %w", filepath.Base(path), err)
	}
	if lock.Type == unix.F_UNLCK {
		return false, nil
	}
	text, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return false, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err != nil || pid != int(lock.Pid), nil
}
