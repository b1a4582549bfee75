package ovsdaemon

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// StopLeftover ends daemons that an earlier process started in dir and did not
// stop, by their pid files, and waits until they are gone. A process id that
// was given to some other program meanwhile is left alone: the command line
// must name the daemon and the directory. No daemons, or no directory, is no
// error.
func StopLeftover(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("run directory %q: %w", dir, err)
	}
	return errors.Join(stopLeftover(dir, "ovs-vswitchd"), stopLeftover(dir, "ovsdb-server"))
}

func stopLeftover(dir, name string) error {
	path := pidFile(dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("leftover %s: %w", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("leftover %s: %s: %w", name, path, err)
	}
	for sig, deadline := syscall.SIGTERM, time.Now().Add(stopGrace); isDaemon(pid, dir, name); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			if sig == syscall.SIGKILL {
				return fmt.Errorf("leftover %s: process %d does not end", name, pid)
			}
			sig, deadline = syscall.SIGKILL, time.Now().Add(stopGrace)
		}
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("leftover %s: kill %d: %w", name, pid, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("leftover %s: %w", name, err)
	}
	return nil
}

// isDaemon reports whether pid is a live process that runs the daemon with
// files in dir. A zombie has an empty command line and counts as gone.
func isDaemon(pid int, dir, name string) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := bytes.Split(cmdline, []byte{0})
	return filepath.Base(string(args[0])) == name && bytes.Contains(cmdline, []byte("="+pidFile(dir, name)))
}
