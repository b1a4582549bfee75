package backend

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/managers/grants"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
)

// The functions below make the managers of each backend, for drivers that program a kernel
// and for drivers that only record the desired state.

// NFTDriver is the managers' view of a driver of nftables.
type NFTDriver interface {
	managers.Chains
	ipsets.Sets
	tables.VerdictMaps
	tables.NumberMaps
}

// NFTablesManagers returns the managers of the backend in nftables.
func NFTablesManagers(c Config, table NFTDriver) (*rules.Renderer, []managers.Manager) {
	r := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength).Between(c.TrafficMode)
	policies := managers.NewPolicyManager(c.Node, r, table)
	endpoints := endpointManager(c, managers.CommonFrom, managers.NewEndpointManager(r, table, table, managers.NewMapDispatcher(table)))
	all := slices.Concat([]managers.Manager{managers.NewDeniedManager(table, r)}, ofNode(c, r, table, table), []managers.Manager{
		managers.NewIPSetManager(ipsets.WithRanges(table)),
	})
	if c.mapped() {
		o := grants.Options{Bound: c.GrantsBound, Kept: c.Kept}
		if c.Layout == config.LayoutAuto {
			o.From = config.AutoLayoutRules
		}
		g := grants.New(table, []tables.Chain{r.Granted(model.Egress), r.Granted(model.Ingress)}, o)
		policies.UseGrants(g)
		endpoints.UseGrants(g)
		all = append(all, g)
	}
	return r, append(all, policies, endpoints, managers.NewOwnNodeManager(r, table, table))
}

// mapped reports whether lists of policies can be in maps.
func (c Config) mapped() bool { return c.Layout == config.LayoutMaps || c.Layout == config.LayoutAuto }

// ofNode returns the managers of the chains that depend on nodes and on the mode of traffic. In the mode networkPolicyOnly, another
// CNI plugin decides about the sources of packets to the outside.
func ofNode(c Config, r *rules.Renderer, chains managers.Chains, sets ipsets.Sets) []managers.Manager {
	if c.TrafficMode == model.PolicyOnly {
		return []managers.Manager{managers.NewOwnPodsManager(r, chains, sets)}
	}
	return []managers.Manager{
		managers.NewStaticManager(c.Node, r, chains, sets, c.Switch.Node.ServiceCIDRs...),
		managers.NewSourceManager(c.Node, c.Masquerade, r, chains),
	}
}

// IPTablesManagers returns the managers of the backends in iptables.
func IPTablesManagers(c Config, table managers.Chains, sets ipsets.Sets) (*rules.Renderer, []managers.Manager) {
	r := rules.NewRenderer(model.GatewayPort, rules.IPTablesNameLength).Between(c.TrafficMode)
	chains := managers.NewTreeDispatcher(r, table)
	chains.UpdateChain(r.Node().Passed())
	from := managers.CommonFrom
	if c.Variant == iptables.Legacy {
		from = managers.NoCommon
	}
	return r, slices.Concat([]managers.Manager{managers.NewDeniedManager(chains, r)}, ofNode(c, r, chains, sets), []managers.Manager{
		managers.NewIPSetManager(sets),
		managers.NewPolicyManager(c.Node, r, chains),
		endpointManager(c, from, managers.NewEndpointManager(r, chains, sets, chains)),
		managers.NewOwnNodeManager(r, chains, sets),
	})
}

func endpointManager(c Config, from int, m *managers.EndpointManager) *managers.EndpointManager {
	m.SetCommonFrom(cmp.Or(c.CommonFrom, from))
	return m
}

// OpenFlowManagers returns the managers of the backend in the switch. They use meters if the
// rate of new connections has a limit.
func OpenFlowManagers(c Config, flows policyflows.Flows, boundRates bool, host NFTDriver) (*rules.Renderer, []managers.Manager) {
	_, r, all := switchManagers(c, policyflows.New(policyflows.Options{Flows: flows, BoundRates: boundRates}), host)
	return r, all
}

func switchManagers(c Config, store *policyflows.Store, host NFTDriver) (*managers.SwitchPolicyManager, *rules.Renderer, []managers.Manager) {
	r := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength).Routed(c.TrafficMode != model.Encap)
	policies := managers.NewSwitchPolicyManager(c.Node, store)
	snatBridge := ""
	if c.Switch.Node.SNAT != nil {
		snatBridge = c.Switch.Node.SNAT.Bridge
	}
	return policies, r, []managers.Manager{policies, managers.NewNoServiceManager(host), managers.NewHostManager(managers.HostOptions{
		Node: c.Node, Services: c.Switch.Node.ServiceCIDRs, Hairpin: pipeline.Hairpin, Masquerade: c.Masquerade, SNATBridge: snatBridge,
	}, r, host, host), managers.NewHostPolicyManager(c.Node, r, host, host, store.Members)}
}

// ForwardingManagers returns the managers of the bridge's forwarding flows for the configured
// backend's enforcement point.
func ForwardingManagers(c Config, flows managers.Flows) []managers.Manager {
	bridge := c.Switch.Node
	if c.Name == config.OpenFlow {
		bridge.Mode = pipeline.Full
	}
	return []managers.Manager{managers.NewForwardingManager(c.Node, bridge, flows), managers.NewTunnelManager(c.Node, c.TrafficMode, bridge, flows)}
}
