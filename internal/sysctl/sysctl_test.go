package sysctl

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadAndWrite(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	// Never unlocked: the thread and its namespace end with the test.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	const key = "net/ipv4/conf/all/rp_filter"
	for _, value := range []string{"2", "2", "0"} {
		if err := Write(key, value); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(key); err != nil || got != value {
			t.Errorf("%s = %q, %v, want %s", key, got, err, value)
		}
	}
	if err := Write("net/ipv4/conf/flx-none/rp_filter", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a setting of no interface: %v", err)
	}
}
