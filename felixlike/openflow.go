package felixlike

import (
	"context"
	"errors"
	"time"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/tables/nftables"
)

// hostTable is the nftables table beside the policy flows: it hides pods behind
// the node's address on the way out, and drops what goes around the bridge.
const hostTable = nftables.DefaultTable + "-openflow"

// switchPolicy is what the backend in the switch programs: policy flows, over
// a connection of their own, and the host's table.
type switchPolicy struct {
	link link
	host *nftables.Table
}

func newOpenFlow(c Choice) Backend {
	p := &switchPolicy{
		link: link{socket: managementSocket(c.Switch.RunDir, c.Switch.Bridge), flows: openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)},
		host: nftables.New(nftables.Options{Table: hostTable, NetNS: c.NetNS}),
	}
	return Backend{
		Name: OpenFlow, Place: InSwitch, Left: p.left, Remove: p.remove, Close: p.close,
		Stage: Stage{
			Name: "openflow-policy", After: HostStage, Required: true, Managers: []managers.Manager{managers.NewIPSetManager(p.host)}, Timeout: 60 * time.Second,
			Apply: p.apply, Invalidate: p.invalidate,
		},
	}
}

func (p *switchPolicy) apply(context.Context) (Applied, error) {
	return Applied{}, errors.New("policy flows cannot be rendered yet")
}

func (p *switchPolicy) invalidate() {
	p.host.Invalidate()
	p.link.reread()
}

// left reports whether there are policy flows or the host's table.
func (p *switchPolicy) left(ctx context.Context) (bool, error) {
	s, err := p.host.Snapshot(ctx)
	return s.Exists, err
}

// remove removes the host's table.
func (p *switchPolicy) remove(ctx context.Context, _ string) error { return p.host.Remove(ctx) }

func (p *switchPolicy) close() error {
	p.link.close()
	return p.host.Close()
}
