package ovsdb

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestMissingDatapathIsNamed runs daemons without the kernel's datapath. The
// database does not report that it is missing.
func TestMissingDatapathIsNamed(t *testing.T) {
	f := newFixture(t)
	f.cfg.DatapathType, f.cfg.Uplink = DatapathSystem, ""
	ctx, cancel := context.WithTimeout(f.context(), 500*time.Millisecond)
	defer cancel()
	err := f.open().EnsureBridge(ctx)
	for _, word := range []string{"br-int", "flx-", "kernel module openvswitch", "netdev"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %q: %v", word, err)
		}
	}
}
