package ovsdaemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// temporary begins the name of every directory that TempDir makes; the process
// id of its owner follows.
const temporary = "flx-run-"

// TempDir makes a run directory for daemons that are to end with this process. It first removes the daemons
// and directories of crashed processes.
func TempDir() (string, error) {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), temporary+"*"))
	if err != nil {
		return "", fmt.Errorf("run directories: %w", err)
	}
	var errs []error
	for _, dir := range left {
		if abandoned(filepath.Base(dir)) {
			errs = append(errs, StopLeftover(dir), os.RemoveAll(dir))
		}
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", temporary, os.Getpid()))
	return dir, errors.Join(append(errs, err)...)
}

// abandoned reports whether a directory of TempDir's has an owner that is gone.
func abandoned(name string) bool {
	owner, _, _ := strings.Cut(strings.TrimPrefix(name, temporary), "-")
	pid, err := strconv.Atoi(owner)
	return err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
