package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// widenEvery bounds how long the socket of a new port has the kernel's default of a
// receive buffer. ovs-vswitchd with the ports of 500 pods has some 1,000 sockets: to
// look at them takes 3 ms.
const widenEvery = time.Second

// bursts has the userspace datapath take bursts of new connections: receive buffers
// that hold them, and priority for the thread that empties these. The agent sets both as
// soon as a port comes, but only where it sees the daemon's process: in the DaemonSet
// it is in another container.
type bursts struct {
	daemon *vswitchd.Client
	log    *slog.Logger
	// reported tells that the last attempt to widen buffers failed, which is logged once.
	reported bool
}

func newBursts(runDir string, log *slog.Logger) *bursts {
	return &bursts{daemon: vswitchd.New(runDir, ovsdb.DatapathNetdev), log: log}
}

// prefer gives the daemon's main thread priority. A new daemon has none.
func (b *bursts) prefer() {
	if err := b.daemon.PreferPackets(); err != nil {
		b.log.Warn("the userspace datapath has no priority: on a busy node new connections are answered late", "error", err)
	}
}

// begin widens the receive buffers of new ports until ctx ends. The function that it
// returns ends that earlier, and waits for the end.
func (b *bursts) begin(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.widen(ctx)
	}()
	return func() { cancel(); <-done }
}

func (b *bursts) widen(ctx context.Context) {
	tick := time.NewTicker(widenEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := b.daemon.WidenBuffers()
		if errors.Is(err, vswitchd.ErrNotRunning) {
			continue
		}
		reported := b.reported
		b.reported = err != nil
		if err != nil && !reported {
			b.log.Warn("the userspace datapath loses packets of bursts: its sockets have the kernel's default of a receive buffer", "error", err)
		}
	}
}
