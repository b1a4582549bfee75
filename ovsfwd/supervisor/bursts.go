package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// prepareEvery is the time between two looks for a new daemon or the sockets of new ports.
const prepareEvery = time.Second

// bursts prepares the userspace datapath for bursts of new connections. It sets larger
// receive buffers, and gives priority to the thread that reads them. The agent sets both
// when a port is added, but only if it sees the daemon's process. In Kubernetes the
// daemon is in another pod.
type bursts struct {
	daemon *vswitchd.Client
	log    *slog.Logger
	// failed says that the last attempt failed. Only the first failure is logged.
	failed bool
}

func newBursts(runDir string, log *slog.Logger) *bursts {
	return &bursts{daemon: vswitchd.New(runDir, ovsdb.DatapathNetdev), log: log}
}

// begin starts preparing the daemon, its successors and new ports, until ctx ends. The
// returned function stops it earlier, and waits until it has stopped.
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
		b.log.Warn("cannot set receive buffers and priority of ovs-vswitchd: in bursts of new connections it loses packets or answers late", "error", err)
	}
	b.failed = err != nil
}
