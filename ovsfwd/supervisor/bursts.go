package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// prepareEvery bounds how long a new daemon or the socket of a new port goes without.
const prepareEvery = time.Second

// bursts has the userspace datapath take bursts of new connections: receive buffers
// that hold them, and priority for the thread that empties these. The agent sets both as
// soon as a port comes, but only where it sees the daemon's process: in the DaemonSet
// it is in another container.
type bursts struct {
	daemon *vswitchd.Client
	log    *slog.Logger
	// failed tells that the last attempt failed. That is logged once.
	failed bool
}

func newBursts(runDir string, log *slog.Logger) *bursts {
	return &bursts{daemon: vswitchd.New(runDir, ovsdb.DatapathNetdev), log: log}
}

// begin prepares the daemon, and what comes later, until ctx ends. The function that
// it returns ends that earlier, and waits for the end.
func (b *bursts) begin(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run(ctx)
	}()
	return func() { cancel(); <-done }
}

func (b *bursts) run(ctx context.Context) {
	tick := time.NewTicker(prepareEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.prepare()
		}
	}
}

func (b *bursts) prepare() {
	_, err := b.daemon.WidenBuffers()
	err = errors.Join(err, b.daemon.PreferPackets())
	if errors.Is(err, vswitchd.ErrNotRunning) {
		return
	}
	if err != nil && !b.failed {
		b.log.Warn("the userspace datapath answers late or loses packets in bursts of new connections", "error", err)
	}
	b.failed = err != nil
}
