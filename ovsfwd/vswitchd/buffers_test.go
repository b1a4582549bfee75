package vswitchd_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/ovstest"
)

func TestBuffersAndPriority(t *testing.T) {
	b := ovstest.NewBridge(t)
	c := vswitchd.New(b.Daemons.Dir(), "netdev")
	for _, name := range []string{"v0", "v1"} {
		b.Run("ip", "-n", b.NS, "link", "add", name, "type", "veth", "peer", "name", name+"p")
		if _, err := b.DB.AttachPort(b.Context(), model.Attachment{
			Pod: model.PodID{Namespace: "x", Name: name}, Interface: name, MAC: []byte{2, 0, 0, 0, 0, 1},
		}); err != nil {
			t.Fatal(err)
		}
		if n, err := c.WidenBuffers(); err != nil || n != 1 {
			t.Errorf("port %s: %d sockets widened, %v; want that of the new port", name, n, err)
		}
	}
	if n, err := c.WidenBuffers(); err != nil || n != 0 {
		t.Errorf("%d sockets widened again, %v", n, err)
	}
	_, pid := b.Daemons.PIDs()
	// The system call returns 20 less the nice value.
	if err := c.PreferPackets(); err != nil {
		t.Error(err)
	} else if priority, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err != nil || priority != 30 {
		t.Errorf("priority of the main thread is %d, %v", priority, err)
	}
	// Without CONFIG_SCHED_AUTOGROUP there is no such file, and nothing to do.
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", pid))
	if !errors.Is(err, os.ErrNotExist) && !strings.HasSuffix(string(group), " nice -10\n") {
		t.Errorf("the daemon's session is %q, %v", group, err)
	}
	if n, err := vswitchd.New(b.Daemons.Dir(), "system").WidenBuffers(); err != nil || n != 0 {
		t.Errorf("kernel's datapath: %d sockets, %v", n, err)
	}
}
