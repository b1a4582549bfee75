package main

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAgentWithoutRights: an agent that could program nothing says so and ends, before it waits
// for Open vSwitch.
func TestAgentWithoutRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: capabilities that can be given up")
	}
	done := make(chan error)
	go func() {
		// Capabilities are the thread's, which ends with this goroutine.
		runtime.LockOSThread()
		header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(&header, &none[0]); err != nil {
			done <- err
			return
		}
		root := rootCommand()
		root.SetArgs([]string{"--node-name", "n", "--ovs-run-dir", t.TempDir(), "--run-dir", t.TempDir()})
		done <- root.ExecuteContext(t.Context())
	}()
	if err := <-done; !errors.Is(err, errRights) {
		t.Errorf("error %v, want %v", err, errRights)
	}
	if err := checkRights(); err != nil {
		t.Errorf("as root: %v", err)
	}
}
