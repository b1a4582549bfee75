package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/bench/worker"
)

// ovs is a namespace's own Open vSwitch with an empty bridge. A nil one is that
// of a namespace without.
type ovs struct {
	dir     string
	daemons *ovsdaemon.Daemons
}

// startSwitch starts the Open vSwitch that a backend needs.
func startSwitch(ctx context.Context, ns *namespace.Namespace, b worker.Backend) (*ovs, error) {
	if !b.NeedsSwitch {
		return nil, nil
	}
	return startOVS(ctx, ns, ovsdb.DatapathNetdev, "fail_mode=secure", "protocols=[OpenFlow13,OpenFlow15]")
}

// startOVS starts an Open vSwitch in the namespace, with a bridge that has this datapath and
// these settings.
func startOVS(ctx context.Context, ns *namespace.Namespace, datapath string, settings ...string) (*ovs, error) {
	dir, err := ovsdaemon.TempDir()
	if err != nil {
		return nil, err
	}
	o := &ovs{dir: dir}
	// The daemons are started from the namespace's own thread, and are in it.
	if err := ns.Do(func() (err error) {
		o.daemons, err = ovsdaemon.Start(ctx, ovsdaemon.Options{Dir: dir, Kernel: datapath == ovsdb.DatapathSystem})
		return err
	}); err != nil {
		return nil, errors.Join(err, o.stop())
	}
	argv := []string{"ovs-vsctl", "--db=unix:" + o.daemons.DBSocket(), "add-br", worker.Bridge, "--", "set", "bridge", worker.Bridge, "datapath_type=" + datapath}
	if err := finish(ns, command(ctx, append(argv, settings...))); err != nil {
		return nil, errors.Join(err, o.stop())
	}
	return o, nil
}

// worker returns the data for a worker.
func (o *ovs) worker() worker.Switch {
	if o == nil {
		return worker.Switch{}
	}
	_, vswitchd := o.daemons.PIDs()
	return worker.Switch{Dir: o.dir, PID: vswitchd}
}

func (o *ovs) stop() error {
	if o == nil {
		return nil
	}
	var err error
	if o.daemons != nil {
		err = o.daemons.Stop()
	}
	return errors.Join(err, os.RemoveAll(o.dir))
}

// argv is a tool's command, for this switch.
func (o *ovs) argv(argv []string) []string {
	return slices.Collect(func(yield func(string) bool) {
		for _, a := range argv {
			if a == worker.Socket {
				a = o.worker().Socket()
			}
			if !yield(a) {
				return
			}
		}
	})
}

// checkSwitch returns an error if a backend's switch cannot run here.
func checkSwitch(b worker.Backend) error {
	if !b.NeedsSwitch {
		return nil
	}
	if err := ovsdaemon.Available(); err != nil {
		return fmt.Errorf("backend %s: %w", b.Name, err)
	}
	return nil
}

// toolName is a tool's command as the report shows it.
func toolName(t worker.Tool) string {
	return strings.ReplaceAll(t.String(), worker.Socket, worker.Bridge)
}
