package foreign

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/test/tablestest"
)

// TestRefusalIsNoAbsence: a kernel that refuses to list chains is an error, and only one without nf_tables has none.
func TestRefusalIsNoAbsence(t *testing.T) {
	tablestest.NewNamespace(t, "nft") // or skips
	lists := map[string]func() error{
		"kube-proxy": func() error { _, err := KubeProxy(0); return err },
		"drops":      func() error { _, err := Drops(0, "felixlike", Packet{}); return err },
	}
	for name, list := range lists {
		done := make(chan error)
		go func() {
			// Capabilities are the thread's, which ends with this goroutine.
			runtime.LockOSThread()
			header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
			if err := unix.Capset(&header, &none[0]); err != nil {
				done <- err
				return
			}
			done <- list()
		}()
		var code refusal
		if err := <-done; !errors.As(err, &code) || unix.Errno(code) != unix.EPERM {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for code, absent := range map[unix.Errno]bool{unix.EINVAL: true, unix.EOPNOTSUPP: true, unix.ENOENT: true, unix.EPERM: false, unix.EBUSY: false, unix.ENOMEM: false} {
		if noTables(refusal(code)) != absent {
			t.Errorf("%v: absent %v", code, !absent)
		}
	}
}
