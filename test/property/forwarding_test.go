package property

import (
	"context"
	"hash/fnv"

	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// forwarding returns the stage that programs what switches, as the agent has it.
func (o *ovs) forwarding() (*felixlike.Stage, error) {
	node := pipeline.Node{
		GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: o.config.GatewayMAC,
	}
	conn, err := openflow.Dial(o.context(), o.management())
	if err != nil {
		return nil, err
	}
	o.t.Cleanup(func() { conn.Close() })
	table := openflow.NewFlowTable(pipeline.Owner, pipeline.Version)
	table.Connect(conn)
	return &felixlike.Stage{
		Name: "openflow",
		Managers: []managers.Manager{
			managers.NewForwardingManager(o.config.NodeName, node, table),
			managers.NewTunnelManager(o.config.NodeName, node, table),
		},
		Invalidate: func() { table.Connect(conn) },
		Apply: func(ctx context.Context) (felixlike.Applied, error) {
			r, err := table.Apply(ctx)
			return felixlike.Applied{Writes: r.Messages}, err
		},
	}, nil
}

// port returns the port that a pod is given. No two pods have the same, unless
// the ports exist: then there is one for each name.
func (o *ovs) port(id model.PodID) uint32 {
	if len(o.pool) > 0 {
		return o.pool[id.Name]
	}
	h := fnv.New32a()
	h.Write([]byte(id.String()))
	return 1000 + h.Sum32()%60000
}
