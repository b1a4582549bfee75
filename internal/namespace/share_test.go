package namespace_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// privateEnv marks the process of this test's binary with a private mount namespace.
const privateEnv = "FELIXLIKE_TEST_PRIVATE_MOUNTS"

// inPrivateMounts runs the test once more in a process with private mounts, with an
// empty /run/netns that is no mount, and reports whether that is this process.
func inPrivateMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(privateEnv) == "" {
		if os.Geteuid() != 0 {
			t.Skip("mounts need root")
		}
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), privateEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return false
	}
	if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(namespace.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return true
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

func gone(t *testing.T, name string) {
	t.Helper()
	if namespace.Exists(name) {
		t.Errorf("namespace %s is still there", name)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), namespace.Path(name)) {
		t.Errorf("namespace %s is still mounted:\n%s", name, mounts)
	}
}

// TestDeleteAfterIPNetns: `ip netns add` after Create does not cover the namespace.
func TestDeleteAfterIPNetns(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	n, err := namespace.Create("ours")
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	ip(t, "netns", "add", "theirs")
	// As `ip netns del` does it.
	if err := unix.Unmount(n.Path(), unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
	if err := os.Remove(n.Path()); err != nil {
		t.Error(err)
	}
	gone(t, "ours")
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	// Those of the machine itself are below the new /run.
	if err != nil || strings.Count(string(mounts), " /netns "+namespace.Dir+" ") != 1 {
		t.Errorf("%v: want one mount of %s in\n%s", err, namespace.Dir, mounts)
	}
	ip(t, "-n", "theirs", "link")
	ip(t, "netns", "del", "theirs")
}

// TestDeleteOfACoveredNamespace: a namespace that `ip netns add` has covered, once or
// more often, is removed, and others stay.
func TestDeleteOfACoveredNamespace(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	for round := range 3 {
		old := fmt.Sprintf("old%d", round)
		// Without Create, which would make the folder a mount first.
		if err := os.WriteFile(namespace.Path(old), nil, 0o444); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("/proc/self/ns/net", namespace.Path(old), "none", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			ip(t, "netns", "add", "theirs")
		} else if err := unix.Mount(namespace.Dir, namespace.Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		old := fmt.Sprintf("old%d", round)
		if err := namespace.Delete(old); err != nil {
			t.Error(err)
		}
		gone(t, old)
	}
	ip(t, "-n", "theirs", "link")
}
