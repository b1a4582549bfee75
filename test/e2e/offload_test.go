package e2e

import (
	"os"
	"testing"

	"github.com/felixlike/felixlike/internal/ethtool"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// TestTransmitOffload: transmit checksum offload of pods and uplinks is on exactly on
// the kernel's datapath. TCP gets through on both datapaths, on one node and between
// two.
func TestTransmitOffload(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes))
	want := os.Getenv(datapathEnv) == ovsdb.DatapathSystem
	for name, ns := range map[string]*namespace.Namespace{
		"pod x/a": l.Pod(pod("a")).Namespace(), "pod x/c": l.Pod(pod("c")).Namespace(), "uplink of node1": l.Node("node1").Namespace(),
	} {
		var on bool
		err := ns.Do(func() (err error) {
			on, err = ethtool.Get("eth0", ethtool.TxChecksum)
			return err
		})
		if err != nil || on != want {
			t.Errorf("%s: transmit checksum offload is on: %v, want %v, error %v", name, on, want, err)
		}
	}
	for _, f := range model.Families() {
		transfer(t, l, "b", "a", f)
		transfer(t, l, "c", "a", f)
	}
}
