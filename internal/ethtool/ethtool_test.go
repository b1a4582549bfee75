package ethtool

import (
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func TestFeatures(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	runtime.LockOSThread() // and the thread ends with the test: it is in another namespace
	fresh, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "one0"}, PeerName: "two0"}); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Feature{TxChecksum, GRO} {
		for _, want := range []bool{true, false, true, false} {
			if err := Set("one0", f, want); err != nil {
				t.Fatal(err)
			}
			if on, err := Get("one0", f); err != nil || on != want {
				t.Errorf("%s is %v, %v; want %v", f, on, err, want)
			}
		}
		if err := Set("none0", f, true); err == nil {
			t.Errorf("%s of an interface that does not exist: no error", f)
		}
	}
}
