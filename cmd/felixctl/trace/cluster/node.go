package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	reader "github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/live"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// Node is a node that is asked.
type Node struct {
	live.Node
	// Agent is the node's.
	Agent *control.Client
	// Read sets these: the agent's status and model, and the node's state for a
	// packet walk.
	Status control.Status
	Model  control.Model
	Site   *trace.Site

	parts []reader.Part
	asked asked
	// saved is the node's state if it was read elsewhere.
	saved *State
}

// read reads the agent's model and the node's state.
func (n *Node) read(ctx context.Context) error {
	if n.saved != nil {
		return n.load()
	}
	pid, err := n.Agent.PID(ctx)
	if err != nil {
		return err
	}
	if n.Status, err = n.Agent.Status(ctx); err != nil {
		return err
	}
	if n.Model, err = n.Agent.Model(ctx); err != nil {
		return err
	}
	if err := n.Model.Judges(); err != nil {
		return err
	}
	n.Name, n.Backend, n.OVSDir, n.NetNS = n.Model.Node, n.Model.Backend, n.Model.Settings.OVSRunDir, fmt.Sprintf("/proc/%d/ns/net", pid)
	at := reader.Node{NetNS: n.NetNS, OVSRunDir: n.OVSDir, Bridge: n.Model.Settings.Bridge}
	if n.parts, err = reader.Read(ctx, at, reader.Options{Backend: n.Backend}); err != nil {
		return fmt.Errorf("read the state of %s: %w", n.Name, err)
	}
	return n.hold(n.remembered(ctx))
}

// wanted returns the node as it would be if another backend decided.
func (n *Node) wanted(backend string) (*trace.Site, error) {
	s, err := wanted.Of(&n.Model, backend)
	if err != nil {
		return nil, err
	}
	return SiteOf(&n.Model, s), nil
}

// SiteOf returns the node of a model for tracing, holding a state. Without flows in
// it, the bridge is taken to let everything pass.
func SiteOf(m *control.Model, s *dump.State) *trace.Site {
	site := &trace.Site{
		Node: m.Node, Nodes: m.Nodes, HostAddresses: m.HostAddresses, TrafficMode: m.Settings.TrafficMode, Subnets: m.Subnets, Hops: m.Hops, Bridge: cmp.Or(m.Settings.Bridge, config.Defaults().Bridge), Gateway: model.GatewayPort, Uplink: "uplink",
		GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: ovsdb.GatewayMAC(m.Node), Rulesets: trace.Rulesets(s),
	}
	if len(s.Flows) > 0 {
		site.Flows = trace.NewFlows(s)
	}
	for _, a := range m.Attachments {
		mac, _ := net.ParseMAC(a.MAC) // without one, spoofguard knows no packet of the pod
		site.Attachments = append(site.Attachments, &model.Attachment{
			Pod: a.Pod, Interface: a.Interface, OFPort: a.OFPort, Bridge: a.Bridge, MAC: mac, Addresses: a.Addresses,
		})
	}
	return site
}
