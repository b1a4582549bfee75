// Package sysctl reads and writes the kernel's network settings in the
// network namespace of the calling thread. It knows no setting, and
// is tested on the kernel in a fresh namespace.
package sysctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// In a container that is not privileged /proc/sys is read-only. deploy/base
// mounts the node's /proc/sys/net once more, here. It still shows the settings of the
// thread's own namespace.
const (
	hostDir = "/host/proc/sys"
	ownDir  = "/proc/sys"
)

// Read returns a setting, as "net/ipv4/ip_forward", without the line's end. An
// error of a setting that this kernel lacks is fs.ErrNotExist.
func Read(key string) (string, error) {
	value, err := os.ReadFile(path(key))
	if err != nil {
		return "", fmt.Errorf("sysctl %s: %w", key, err)
	}
	return strings.TrimSpace(string(value)), nil
}

// Write sets a setting, also to the value that it has: the kernel passes some on
// to all interfaces whenever they are written.
func Write(key, value string) error {
	if err := os.WriteFile(path(key), []byte(value), 0o644); err != nil {
		return fmt.Errorf("sysctl %s: %w", key, err)
	}
	return nil
}

func path(key string) string {
	if _, err := os.Stat(filepath.Join(hostDir, "net")); err == nil {
		return filepath.Join(hostDir, key)
	}
	return filepath.Join(ownDir, key)
}
