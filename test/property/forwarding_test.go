package property

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// pipeline returns the node's facts for its pipeline.
func (o *ovs) pipeline() pipeline.Node {
	return pipeline.Node{
		GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: o.config.GatewayMAC,
		Mode: pipeline.Full, Userspace: true,
	}
}

// forwarding programs the flows that switch, as the agent does.
type forwarding struct {
	backend.Stage
	conn *openflow.Conn
}

func (o *ovs) forwarding() (*forwarding, error) {
	conn, err := openflow.Dial(o.context(), o.management())
	if err != nil {
		return nil, err
	}
	table := openflow.NewFlowTable(pipeline.Owner, pipeline.Version)
	table.Connect(conn)
	local := managers.NewForwardingManager(o.config.NodeName, o.pipeline(), table)
	return &forwarding{conn: conn, Stage: backend.Stage{
		Name:       backend.ForwardingStage,
		Forwarding: local,
		Managers:   []managers.Manager{local, managers.NewTunnelManager(o.config.NodeName, model.Encap, o.pipeline(), table)},
		Invalidate: func() { table.Connect(conn) },
		Apply: func(ctx context.Context) (backend.Applied, error) {
			r, err := table.Apply(ctx)
			return backend.Applied{Writes: r.Messages}, err
		},
	}}, nil
}

// hostAddresses are those of the node of random clusters that the bridge is of.
func (o *ovs) hostAddresses() []netip.Addr {
	v4 := o.config.LocalIP.As4()
	return []netip.Addr{o.config.LocalIP, netip.MustParseAddr(fmt.Sprintf("fd00:50::%d", v4[3]))}
}

// port returns the port that a pod is given: the one of its name if that exists, or
// else one that no other pod has.
func (o *ovs) port(id model.PodID) uint32 {
	if n := o.pool[id.Name]; n != 0 {
		return n
	}
	h := fnv.New32a()
	h.Write([]byte(id.String()))
	return 1000 + h.Sum32()%60000
}
