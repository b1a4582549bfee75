package trace

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/dump"
	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// recorder keeps what managers want, as the kernel and the switch would list it.
type recorder struct {
	chains map[string]tables.Chain
	sets   map[string]*dump.Set
	flows  map[string]func() []openflow.Flow
}

func newRecorder() *recorder {
	return &recorder{chains: map[string]tables.Chain{}, sets: map[string]*dump.Set{}, flows: map[string]func() []openflow.Flow{}}
}

func (r *recorder) UpdateChain(c tables.Chain) { r.chains[c.Name] = c }
func (r *recorder) RemoveChain(name string)    { delete(r.chains, name) }
func (r *recorder) RemoveSet(name string)      { delete(r.sets, name) }
func (r *recorder) RemoveFlows(key string)     { delete(r.flows, key) }
func (r *recorder) CreateSet(s ipsets.Set) {
	r.sets[s.Name] = &dump.Set{Name: s.Name, Kind: s.Kind, Family: s.Family}
}
func (r *recorder) RemoveMembers(string, []model.Member) {}

func (r *recorder) SetFlows(key string, render func() []openflow.Flow) { r.flows[key] = render }

func (r *recorder) AddMembers(name string, members []model.Member) {
	for _, m := range members {
		r.sets[name].Elements = append(r.sets[name].Elements, dump.Element{Member: m})
	}
}

func (r *recorder) CreateMap(name string, f model.Family) {
	r.sets[name] = &dump.Set{Name: name, Kind: model.Addresses, Family: f, Verdicts: true}
}

func (r *recorder) SetVerdict(name string, a netip.Addr, verdict tables.Action) {
	r.RemoveVerdict(name, a)
	r.sets[name].Elements = append(r.sets[name].Elements, dump.Element{Member: model.AddressMember(a), Verdict: verdict})
}

func (r *recorder) RemoveVerdict(name string, a netip.Addr) {
	s := r.sets[name]
	s.Elements = slices.DeleteFunc(s.Elements, func(e dump.Element) bool { return e.Member == model.AddressMember(a) })
}

// state is what was recorded.
func (r *recorder) state(t testing.TB) *dump.State {
	t.Helper()
	table := &dump.Table{Dialect: dump.NFT, Family: "inet", Name: nftables.DefaultTable}
	for _, name := range sortedKeys(r.chains) {
		c := r.chains[name]
		out := &dump.Chain{Name: name}
		if h := c.Hook; h != nil {
			out.Hook = &dump.Hook{Type: h.Type.String(), Point: h.Point.String(), Priority: h.Priority}
		}
		for _, rule := range c.Rules {
			out.Rules = append(out.Rules, dump.Rule{Rule: rule, Hash: rule.Hash()})
		}
		table.Chains = append(table.Chains, out)
	}
	for _, name := range sortedKeys(r.sets) {
		table.Sets = append(table.Sets, r.sets[name])
	}
	s := &dump.State{Tables: []*dump.Table{table}}
	for _, key := range sortedKeys(r.flows) {
		for _, flow := range r.flows[key]() {
			f, err := dump.ParseFlow(flow.String())
			if err != nil {
				t.Fatal(err)
			}
			s.Flows = append(s.Flows, f)
		}
	}
	return s
}

// sitesOf renders a cluster for a backend: one site a node.
func sitesOf(t testing.TB, c *oracle.Cluster, backend string) []*Site {
	t.Helper()
	var sites []*Site
	for _, n := range c.Nodes {
		sites = append(sites, siteOf(t, c, backend, n.Name))
	}
	return sites
}

func siteOf(t testing.TB, c *oracle.Cluster, backend, node string) *Site {
	t.Helper()
	engine := policy.New(node)
	for _, n := range c.Nodes {
		engine.SetNode(n)
	}
	for _, n := range c.Namespaces {
		engine.SetNamespace(n)
	}
	for _, p := range c.Policies {
		engine.SetNetworkPolicy(p)
	}
	s := &Site{
		Node: node, Bridge: "br-int", Gateway: felixlike.GatewayPort, Uplink: "uplink",
		GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: ovsdb.GatewayMAC(node),
	}
	for i, p := range c.Pods {
		engine.SetPod(p)
		if p.Spec.NodeName != node || p.Spec.HostNetwork {
			continue
		}
		a := &model.Attachment{
			Pod: model.PodID{Namespace: p.Namespace, Name: p.Name}, Interface: fmt.Sprintf("fx-%d", i),
			OFPort: uint32(10 + i), MAC: net.HardwareAddr{0x0a, 0, 0, 0, 0, byte(i)},
		}
		for _, ip := range p.Status.PodIPs {
			a.Addresses = append(a.Addresses, netip.MustParseAddr(ip.IP))
		}
		engine.SetLocalAddresses(a.Pod, a.Addresses)
		s.Attachments = append(s.Attachments, a)
	}
	updates := engine.Flush()
	for _, u := range updates {
		if n, ok := u.(model.NodeUpdate); ok {
			s.Nodes = append(s.Nodes, n.Node)
		}
	}
	self := s.node()
	s.HostAddresses = append(slices.Clone(self.Addresses), self.Gateway(model.IPv4), self.Gateway(model.IPv6))
	updates = append(updates, model.HostAddressesUpdate{Addresses: s.HostAddresses})
	for _, a := range s.Attachments {
		updates = append(updates, model.AttachmentUpdate{Attachment: a})
	}
	r := newRecorder()
	all := append(backendManagers(r, node, backend), forwarding(r, s, backend)...)
	for _, m := range all {
		for _, u := range updates {
			m.OnUpdate(u)
		}
		m.CompleteDeferredWork()
	}
	state := r.state(t)
	s.Rulesets, s.Flows = Rulesets(state), NewFlows(state)
	return s
}

func backendManagers(r *recorder, node, backend string) []managers.Manager {
	renderer := rules.NewRenderer(felixlike.GatewayPort, rules.NFTablesNameLength)
	var chains managers.Chains = r
	var dispatch managers.Dispatcher
	switch backend {
	case felixlike.OpenFlow:
		return []managers.Manager{
			managers.NewSwitchPolicyManager(node, policyflows.New(policyflows.Options{Flows: r})),
			managers.NewHostManager(managers.HostOptions{Node: node, Hairpin: pipeline.Hairpin, Masquerade: true}, renderer, r, r),
		}
	case felixlike.NFTables:
		dispatch = managers.NewMapDispatcher(r)
	default:
		trees := managers.NewTreeDispatcher(renderer, r)
		chains, dispatch = trees, trees
	}
	return []managers.Manager{
		managers.NewStaticManager(node, renderer, chains, r), managers.NewIPSetManager(r), managers.NewPolicyManager(node, renderer, chains),
		managers.NewEndpointManager(renderer, chains, dispatch), managers.NewSourceManager(node, true, renderer, chains),
	}
}

func forwarding(r *recorder, s *Site, backend string) []managers.Manager {
	ports := pipeline.Node{GatewayPort: s.GatewayPort, TunnelPort: s.TunnelPort, GatewayMAC: s.GatewayMAC}
	if backend == felixlike.OpenFlow {
		ports.Mode = pipeline.Full
	}
	return []managers.Manager{managers.NewForwardingManager(s.Node, ports, r), managers.NewTunnelManager(s.Node, ports, r)}
}
