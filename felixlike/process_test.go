package felixlike

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// A second agent in a network namespace is refused before it touches anything, also
// with other directories, and starts when the first has ended.
func TestSecondAgentIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	// The thread is not given back: it ends with the test's goroutine.
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	log := slog.New(slog.DiscardHandler)
	release, err := beAlone(t.Context(), log)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &config.Effective{}
	cfg.NodeName, cfg.RunDir, cfg.OVSRunDir = "n", t.TempDir(), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 4*aloneWait)
	defer cancel()
	if err := RunAgent(ctx, cfg, log); !errors.Is(err, conntrack.ErrHeld) {
		t.Errorf("the second agent: %v, want %v", err, conntrack.ErrHeld)
	}
	release()
	if release, err = beAlone(t.Context(), log); err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	release()
}

// An agent that ends while the next one asks for its table does not leave that one without.
func TestHoldIsTakenAgain(t *testing.T) {
	tries := 0
	taken := closer{new(bool)}
	release, err := untilAlone(t.Context(), slog.New(slog.DiscardHandler), func() (io.Closer, error) {
		if tries++; tries == 1 {
			return nil, fmt.Errorf("make the table: %w", unix.EPERM)
		}
		return taken, nil
	})
	if err != nil || tries != 2 {
		t.Fatalf("%d tries: %v", tries, err)
	}
	if release(); !*taken.closed {
		t.Error("the hold of the second try is not released")
	}
}

type closer struct{ closed *bool }

func (c closer) Close() error {
	*c.closed = true
	return nil
}
