package node

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// logUntil ends a context at its first line.
type logUntil struct {
	bytes.Buffer
	end context.CancelFunc
}

func (l *logUntil) Write(b []byte) (int, error) {
	defer l.end()
	return l.Buffer.Write(b)
}

// TestMTUOfTheOuterFamily: the header of IPv6 is 20 bytes longer.
func TestMTUOfTheOuterFamily(t *testing.T) {
	const link = 65535 // of the loopback, less one
	for mode, want := range map[model.TrafficMode][2]int{model.Encap: {link - 50, link - 70}, model.WireGuard: {link - 60, link - 80}, model.NoEncap: {link, link}} {
		for i, node := range []string{"192.168.50.11", "fd00::11"} {
			n := &Network{uplink: "lo", tunnel: "geneve", mode: mode}
			if got, err := n.look(t.Context(), netip.MustParseAddr(node)); err != nil || got.MTU != want[i] {
				t.Errorf("%s of %s: %d, %v, want %d", mode, node, got.MTU, err, want[i])
			}
		}
	}
}

// TestMissingDatabaseIsExplained: the first log of an agent without Open vSwitch, before any
// wait, says what to do.
func TestMissingDatabaseIsExplained(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &logUntil{end: cancel}
	_, err := OpenDatabase(ctx, ovsdb.Config{Socket: t.TempDir() + "/db.sock", Bridge: "br-int"}, slog.New(slog.NewTextHandler(log, nil)))
	if err == nil || !strings.Contains(log.String(), databaseHelp) {
		t.Errorf("error %v, log %s", err, log.String())
	}
}
