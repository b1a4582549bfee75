package probe_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab/probe"
)

// TestSCTPSocketsAreUsed wants the kernel to know the association of a probe, where it
// has SCTP sockets.
func TestSCTPSocketsAreUsed(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		t.Skipf("the kernel has no SCTP sockets: %v", err)
	}
	unix.Close(fd)
	a, b := pair(t)
	target := netip.AddrPortFrom(right[0], 80)
	must(t, b.Serve(model.SCTP, target))
	flow := probe.Flow{From: a, Source: left[0], Target: target, Protocol: model.SCTP}
	if got := probe.Run(t.Context(), []probe.Flow{flow}, probe.Options{Timeout: patience})[0]; !got.Through {
		t.Errorf("probe: %+v", got)
	}
	must(t, b.Namespace().Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/sctp/snmp")
		if err == nil && !strings.Contains(strings.Join(strings.Fields(string(text)), " "), "SctpPassiveEstabs 1 ") {
			t.Errorf("the kernel has set up no association:\n%s", text)
		}
		return err
	}))
}
