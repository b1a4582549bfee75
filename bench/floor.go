package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/bench/worker"
	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/lab/namespace"
	"github.com/felixlike/felixlike/model"
)

// floor is what packets find where there is no policy and no agent: two pods,
// attached as everywhere, on a bridge of an Open vSwitch that has the one flow
// which a new bridge has (NORMAL).
type floor struct {
	wire *wire
	ovs  *ovs
	// Nothing in these namespaces outlives this process.
	node, client, server *namespace.Namespace
}

func startFloor(ctx context.Context, datapath string) (_ *floor, err error) {
	f := &floor{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("switch without an agent: %w", err), f.stop())
		}
	}()
	for _, ns := range []**namespace.Namespace{&f.node, &f.client, &f.server} {
		if *ns, err = namespace.Anonymous(); err != nil {
			return nil, err
		}
	}
	if f.ovs, err = startOVS(ctx, f.node, "datapath_type="+datapath); err != nil {
		return nil, err
	}
	network := netip.MustParsePrefix("10.244.1.0/24")
	if err := f.attach(ctx, clientPod(), f.client, netip.PrefixFrom(labAddress(0), network.Bits())); err != nil {
		return nil, err
	}
	if err := f.attach(ctx, serverPod(), f.server, netip.PrefixFrom(labAddress(1), network.Bits())); err != nil {
		return nil, err
	}
	f.wire, err = newWire(f.client, f.server, labAddress(1), f.ovs.worker().PID)
	return f, err
}

// attach makes a pod's interface, as an agent would.
func (f *floor) attach(ctx context.Context, id model.PodID, ns *namespace.Namespace, address netip.Prefix) error {
	var path string
	if err := ns.Do(func() error {
		path = fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		return nil
	}); err != nil {
		return err
	}
	return f.node.Do(func() error {
		_, err := cni.Attach(ctx, cni.Spec{
			Pod: id, Owner: id.Name, NetNS: path, Interface: podInterface, MTU: podMTU,
			Addresses: []netip.Prefix{address}, Bridge: worker.Bridge, OVSDB: f.ovs.daemons.DBSocket(),
		})
		return err
	})
}

func (f *floor) stop() error {
	if f.wire != nil {
		f.wire.close()
	}
	err := f.ovs.stop()
	for _, ns := range []*namespace.Namespace{f.client, f.server, f.node} {
		if ns != nil {
			ns.Close()
		}
	}
	return err
}
