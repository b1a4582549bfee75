package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// Try programs one object of each kind with the configured backend in a scratch network
// namespace. It returns the objects that the kernel refused, or the missing tools. For
// backend openflow it tries only the host's table, which is in nftables: flows need a switch.
func Try(ctx context.Context, cfg *config.Effective) error {
	c, err := ConfigOf(cfg, ovsdb.DatapathNetdev)
	if err != nil {
		return err
	}
	return tryConfig(ctx, c)
}

func tryConfig(ctx context.Context, c Config) error {
	if c.Name == config.OpenFlow {
		c.Name = config.NFTables
	}
	tried, err := New(ctx, c) // in the node's namespace, to detect the iptables variant
	if err != nil {
		return err
	}
	c.Name = tried.Name()
	if err := tried.Close(); err != nil {
		return err
	}
	return inScratch(ctx, c, tryModel())
}

// inScratch makes a backend program a model in a scratch network namespace, and returns the
// objects that the kernel refused.
func inScratch(ctx context.Context, c Config, updates []model.Update) error {
	ns, err := scratchNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	c.NetNS, c.Node = int(ns.Fd()), tryNode
	b, err := New(ctx, c)
	if err != nil {
		return err
	}
	for _, m := range b.Stage().Managers {
		for _, u := range updates {
			m.OnUpdate(u)
		}
		m.CompleteDeferredWork()
	}
	done, err := b.Stage().Apply(ctx)
	for _, r := range done.Refused {
		err = errors.Join(err, fmt.Errorf("the kernel refuses %s %s %s: %s", r.Object, r.Name, r.Rule, r.Reason))
	}
	return errors.Join(err, b.Close())
}

// scratchNamespace returns a new network namespace, which ends when it is closed.
func scratchNamespace() (*os.File, error) {
	type result struct {
		ns  *os.File
		err error
	}
	made := make(chan result, 1)
	go func() {
		// Never unlocked: the thread ends with this goroutine.
		runtime.LockOSThread()
		var r result
		if r.err = unix.Unshare(unix.CLONE_NEWNET); r.err == nil {
			r.ns, r.err = os.Open("/proc/thread-self/ns/net")
		}
		made <- r
	}()
	r := <-made
	if r.err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", r.err)
	}
	return r.ns, nil
}
