package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/eventually"
)

// Another CNI's configuration that comes first is an outage of the node with an Event,
// for as long as it is there. Without the setting nothing is watched.
func TestOtherCNIIsAnOutage(t *testing.T) {
	cfg := &config.Effective{}
	log := slog.New(slog.DiscardHandler)
	if WatchConfigs(cfg, false, log) != nil {
		t.Error("something is watched without a directory")
	}
	cfg.CNIConfDir = t.TempDir()
	other := filepath.Join(cfg.CNIConfDir, "00-other.conf")
	if err := os.WriteFile(other, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Outages{"node1", hostnet.NewReconciler(), vswitchd.NewWatcher(t.TempDir()), WatchConfigs(cfg, false, log), nil, nil}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- o.Configs.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	var all []datastore.Notice
	eventually.True(t, "there is an outage", func() bool { all = o.Now(); return len(all) > 0 })
	if n := all[0]; len(all) != 1 || n.Kind != noticeOtherCNI || n.Object != model.NodeRef("node1") || !strings.Contains(n.Reason, "00-other.conf") {
		t.Errorf("outages %+v", all)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the outage has ended", func() bool { return len(o.Now()) == 0 })
}
