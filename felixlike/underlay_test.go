package felixlike

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

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

// TestMissingDatabaseIsExplained: the first log of an agent without Open vSwitch, before any
// wait, says what to do.
func TestMissingDatabaseIsExplained(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &logUntil{end: cancel}
	_, err := openDatabase(ctx, ovsdb.Config{Socket: t.TempDir() + "/db.sock", Bridge: "br-int"}, slog.New(slog.NewTextHandler(log, nil)))
	if err == nil || !strings.Contains(log.String(), databaseHelp) {
		t.Errorf("error %v, log %s", err, log.String())
	}
}
