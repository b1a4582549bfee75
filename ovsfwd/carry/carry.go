// Package carry copies connections at a live switch of backends (conntrack
// migration): from the conntrack zone of the bridge's pipeline into the kernel's
// zone 0, which the netfilter backends read, and back. Without the copy, the first
// packet of a server in the middle of a stream would begin a new connection, and
// policy would judge it as one.
//
//	netfilter backends    kernel, zone 0:        mark MarkAllowed
//	openflow backend      zone 65520 (netdev: of ovs-vswitchd, system: of the kernel):
//	                      ct_label bit 64; ct_mark 0x20 if begun by way of the gateway port
//
// It copies only connections that policy allowed, and those between the node itself
// and pods. A copy may be repeated: it does not write entries again that exist and
// are right. If a TCP entry names the server as the originator, the copy has the
// right direction. Entries of TCP connections that ended during the switch are
// deleted: a client may reuse its port, and its next connection has to open.
//
// The package owns the entries of the pipeline's zone, and the mark of the entries
// that it finds or makes in the kernel. It leaves address translations and the marks
// of other programs alone. It knows no policy.
//
// EndTranslations deletes the entries of flows that go on with another source than they must have.
//
// SCTP is copied if the kernel tracks the pipeline's zone. The userspace datapath
// keeps no ports of SCTP, so one entry would stand for all associations between two
// addresses.
//
// It is tested with streams through a bridge of real daemons and the real
// kernel, in network namespaces.
package carry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// Options say which node and bridge a Carrier is of.
type Options struct {
	// Node is the name of this node.
	Node string
	// TrafficMode is the way of packets between nodes.
	TrafficMode model.TrafficMode
	// RunDir is the run directory of ovs-vswitchd, and Socket the management
	// socket of the bridge.
	RunDir, Socket string
	// DatapathType is that of the bridge, "netdev" or "system".
	DatapathType string
}

// Result counts the connections of one call.
type Result struct {
	// Allowed counts the connections that the other enforcement point allowed.
	// Written counts entries that were missing or wrong here and now are right. Ended
	// counts entries deleted here because the connection had ended there.
	Allowed, Written, Ended int
}

// Carrier carries connections. It may be used by several goroutines.
type Carrier struct {
	options Options
	client  *vswitchd.Client

	mu   sync.Mutex
	view view
}

// New returns a Carrier. It learns the nodes and this node's subnets as a manager does, by OnUpdate.
func New(o Options) *Carrier {
	return &Carrier{
		options: o, client: vswitchd.New(o.RunDir, o.DatapathType),
		view: view{node: o.Node, mode: o.TrafficMode, nodes: map[string]*model.Node{}},
	}
}

// OnUpdate takes updates of nodes and of this node's addresses.
func (c *Carrier) OnUpdate(u model.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch u := u.(type) {
	case model.NodeUpdate:
		c.view.nodes[u.Node.Name] = u.Node
	case model.NodeRemove:
		delete(c.view.nodes, u.Name)
	case model.HostAddressesUpdate:
		c.view.subnets = u.Subnets
	}
}

// CompleteDeferredWork does nothing.
func (c *Carrier) CompleteDeferredWork() {}

// knowsNothing reports whether an error means that the switch does not run or does
// not have our bridge. It tracks no connections then.
func knowsNothing(err error) bool {
	return errors.Is(err, vswitchd.ErrNotRunning) || errors.Is(err, vswitchd.ErrNoDatapath)
}

// ForgetConnections forgets the connections of the pipeline's zone from and to
// addresses, and returns how many there were.
func (c *Carrier) ForgetConnections(ctx context.Context, addrs []netip.Addr) (int, error) {
	forgotten := 0
	err := c.withZone(ctx, func(_ *conntrack.Kernel, z zone) (err error) {
		forgotten, err = z.forget(ctx, addrs)
		return err
	})
	if err != nil && !knowsNothing(err) {
		return forgotten, fmt.Errorf("forget connections in the switch: %w", err)
	}
	return forgotten, nil
}

// withZone calls work with the kernel's connection tracking and the zone's.
func (c *Carrier) withZone(ctx context.Context, work func(*conntrack.Kernel, zone) error) error {
	kernel, err := conntrack.OpenKernel()
	if err != nil {
		return err
	}
	var z zone
	var conn *openflow.Conn
	if c.options.DatapathType == ovsdb.DatapathNetdev {
		z = &userspaceZone{client: c.client, dial: func() (_ *openflow.Conn, err error) {
			if conn == nil {
				conn, err = openflow.Dial(ctx, c.options.Socket)
			}
			return conn, err
		}}
	} else {
		z = &kernelZone{kernel: kernel}
	}
	err = work(kernel, z)
	if conn != nil {
		err = errors.Join(err, conn.Close())
	}
	return errors.Join(err, kernel.Close())
}

// look returns the current addresses of the node and of the pod network.
func (c *Carrier) look() (*sight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.look()
}
