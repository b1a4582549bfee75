package backend

import (
	"context"
	"errors"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/multitenant"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Variant names the setting in the reasons of what does not work with it.
const Variant = "pipelineVariant: " + config.VariantOpenShift

// errNoReports is the answer to questions about single packets.
var errNoReports = errors.New(Variant + " reports no packets: the switch compares numbers, and has no policies")

// isolated is the backend openflow with the pipeline of OpenShift SDN. The forwarding stage programs all flows (managers.MultitenantManager): numbers
// isolate namespaces, and policies are not in force, so the pods that they select are closed. This backend programs the host's table alone.
type isolated struct {
	common
	socket string
	host   *nftables.Table
}

func newMultitenant(c Config) *isolated {
	b := &isolated{socket: c.Switch.ManagementSocket(), host: nftables.New(nftables.Options{Table: nftables.HostTable, NetNS: c.NetNS})}
	r, all := MultitenantManagers(c, b.host)
	b.common = common{name: config.OpenFlow, place: InSwitch, renderer: r, stage: Stage{
		Name: PolicyStage, After: HostStage, Required: true, Managers: all, Timeout: policyTimeout, Invalidate: b.host.Invalidate, Watch: b.host.Watch,
		Apply: func(ctx context.Context) (Applied, error) {
			result, err := b.host.Apply(ctx)
			return applied(result), err
		},
	}}
	return b
}

// MultitenantManagers returns the managers of the host's table with the pipeline of OpenShift SDN.
func MultitenantManagers(c Config, host NFTDriver) (*rules.Renderer, []managers.Manager) {
	r := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength)
	return r, []managers.Manager{managers.NewNoServiceManager(host), managers.NewHostManager(managers.HostOptions{
		Node: c.Node, Services: c.Switch.Node.ServiceCIDRs, Hairpin: pipeline.Hairpin, Masquerade: c.Masquerade, Numbered: true,
	}, r, host, host)}
}

// MultitenantManager returns the manager of all flows of the bridge with the pipeline of OpenShift SDN.
func MultitenantManager(c Config, flows managers.Flows) *managers.MultitenantManager {
	return managers.NewMultitenantManager(managers.MultitenantOptions{
		Node: c.Node, GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: c.Switch.Node.GatewayMAC,
		Cluster: c.Cluster, Services: c.Switch.Node.ServiceCIDRs,
	}, flows)
}

// Activate implements Follower.
func (b *isolated) Activate() { b.host.SetGuard(rules.HostGuard(model.GatewayPort)) }

// Hits implements Observer: there are no rules that count.
func (b *isolated) Hits(context.Context, Counted, []*model.Policy) error { return nil }

// Denials implements Observer.
func (b *isolated) Denials() Denials { return noReports{} }

// Logs implements Observer.
func (b *isolated) Logs() Reports { return noReports{} }

// Left implements Leftovers.
func (b *isolated) Left(ctx context.Context) (bool, error) {
	if s, err := b.host.Snapshot(ctx); err != nil || s.Exists {
		return s.Exists, err
	}
	conn, err := openflow.Dial(ctx, b.socket)
	if NoSwitch(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer conn.Close()
	flows, err := conn.Dump(ctx, multitenant.Owner)
	return len(flows) > 0, err
}

// Remove implements Leftovers. Without flows the bridge drops everything.
func (b *isolated) Remove(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	none := Link{Socket: b.socket, Flows: openflow.NewFlowTable(multitenant.Owner, multitenant.Version)}
	_, err := none.Apply(ctx)
	none.Close()
	if NoSwitch(err) {
		err = nil
	}
	return errors.Join(err, b.host.Remove(ctx))
}

// Close implements Leftovers.
func (b *isolated) Close() error { return b.host.Close() }

// noReports refuses all reports of packets.
type noReports struct{}

// Check implements Reports.
func (noReports) Check(context.Context) error { return errNoReports }

// Listen implements Reports.
func (noReports) Listen(context.Context, func(denied.Report)) (<-chan struct{}, error) {
	return nil, errNoReports
}

// Refused implements Reports.
func (noReports) Refused() error { return nil }

// Skipped implements Denials.
func (noReports) Skipped(context.Context) (uint64, error) { return 0, errNoReports }
