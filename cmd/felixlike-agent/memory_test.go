package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitedEnv makes this test's binary join a cgroup and print Go's limit.
const limitedEnv = "FELIXLIKE_TEST_CGROUP"

func TestMain(m *testing.M) {
	cgroup := os.Getenv(limitedEnv)
	if cgroup == "" {
		os.Exit(m.Run())
	}
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	limitMemory(slog.New(slog.DiscardHandler), memlimit.FromCgroup)
	fmt.Print(debug.SetMemoryLimit(-1))
}

// TestMemoryLimit: Go's memory limit is nine tenths of the cgroup's, under both versions
// of cgroups.
func TestMemoryLimit(t *testing.T) {
	const limit = 256 << 20
	cgroup, err := newCgroup(t, limit)
	if err != nil {
		t.Skip("no cgroup can be made here: ", err)
	}
	for want, environment := range map[string]string{"241591910": "X=1", "104857600": "GOMEMLIMIT=100MiB"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{limitedEnv + "=" + cgroup, environment}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("with %s: %v, %s; want %s", environment, err, out, want)
		}
	}
}

// newCgroup makes a cgroup with a memory limit, and returns its directory.
func newCgroup(t *testing.T, limit int) (string, error) {
	name, file := fmt.Sprintf("felixlike-test-%d", os.Getpid()), "memory.max"
	parent := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(parent, "memory")); err == nil {
		file = "memory.limit_in_bytes"
		own, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(own)) {
			if _, path, ok := strings.Cut(strings.TrimSpace(line), ":memory:"); ok {
				parent = filepath.Join(parent, "memory", path)
			}
		}
	}
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	t.Cleanup(func() { _ = os.Remove(dir) }) // empty once the child has ended
	return dir, os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(limit)), 0o644)
}
