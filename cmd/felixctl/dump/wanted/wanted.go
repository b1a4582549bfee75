package wanted

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Of returns what the node of the model has to hold if the named backend (one of
// config.BackendNames; "" for the model's own) decides policy.
func Of(m *control.Model, name string) (*dump.State, error) {
	n, err := NewNode(m, name)
	if err != nil {
		return nil, err
	}
	n.Update(m.Updates())
	return n.State()
}

// Node runs the managers of a node under one backend.
type Node struct {
	managers []managers.Manager
	// read adds the desired state of one driver.
	read []func(*dump.State) error
}

// NewNode returns a node with the settings of a model and the features that the model uses, without
// its objects. For name see Of.
func NewNode(m *control.Model, name string) (*Node, error) {
	if err := m.Judges(); err != nil {
		return nil, err
	}
	if name == "" {
		name = m.Backend
	}
	c := backend.Config{
		Name: name, Node: m.Node, Masquerade: m.Settings.Masquerade, TrafficMode: m.Settings.TrafficMode, TunnelPort: m.Settings.TunnelPort,
		Layout: m.Settings.NFTablesLayout, Kept: m.KeptInMaps, NodePortAddresses: m.Settings.NodePortAddresses,
		Switch: backend.Switch{Node: pipeline.Node{
			GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: ovsdb.GatewayMAC(m.Node),
			Userspace: m.Settings.Userspace, ServiceCIDRs: m.Settings.ServiceCIDRs, Services: m.Settings.ServiceProxy && m.Settings.Userspace, Offload: m.Settings.Offload, SNAT: backend.SNAT(m.Settings.SNAT),
		}},
	}
	n := &Node{}
	switch name {
	case config.NFTables:
		noted := newNoted()
		_, all := backend.NFTablesManagers(c, noted)
		n.table(noted, nftables.DefaultTable, all...)
	case config.IPTables, config.IPTablesLegacy, config.IPTablesNFT:
		n.iptables(c)
	case config.OpenFlow:
		noted, flows := newNoted(), newNotedFlows(pipeline.PolicyOwner)
		_, all := backend.OpenFlowManagers(c, flows, !m.RatesUnbounded, noted)
		n.table(noted, nftables.HostTable, all...)
		n.flows(flows)
	default:
		return nil, fmt.Errorf("backend %q is not one of %s", name, strings.Join(config.BackendNames(), ", "))
	}
	if m.Settings.ServiceProxy {
		n.services(c)
	}
	if m.HostPolicies != nil && m.Failsafe != nil {
		n.hosts(c, *m.Failsafe)
	}
	if m.Settings.TrafficMode == model.PolicyOnly {
		noted := newNoted()
		n.table(noted, nftables.PodSourcesTable, backend.PodSourceManager(c, noted, noted))
		n.frames()
		return n, nil
	}
	if m.Settings.TrafficMode != model.Encap && m.HopsKnown {
		noted := newNoted()
		n.table(noted, nftables.SendersTable, backend.SenderManager(c, noted, noted, knownHops{}))
	}
	if c.TunnelPort != 0 {
		noted := newNoted()
		n.table(noted, nftables.TunnelTable, backend.TunnelPortManager(c, noted, noted))
	}
	if len(m.Egresses) > 0 {
		noted := newNoted()
		n.table(noted, nftables.EgressTable, backend.EgressManager(c, noted, noted))
	}
	forwarding := newNotedFlows(pipeline.Owner)
	n.flows(forwarding, backend.ForwardingManagers(c, forwarding)...)
	return n, nil
}

// Update has the managers take updates and set what follows, to the end: the policy stage forgets a pod
// that has gone once the forwarding stage has.
func (n *Node) Update(updates []model.Update) {
	run(n.managers, updates)
	for _, m := range n.managers {
		if p, ok := m.(*managers.SwitchPolicyManager); ok && p.Forwarded(noneLeft{}) {
			p.CompleteDeferredWork()
		}
	}
}

// noneLeft are forwarding flows without those of the pods that have gone.
type noneLeft struct{}

func (noneLeft) Forwards(*model.Attachment) bool { return false }
func (noneLeft) Led() managers.Tiers             { return managers.Tiers{} }

// State returns what the node has to hold after the updates so far.
func (n *Node) State() (*dump.State, error) {
	s := &dump.State{}
	for _, read := range n.read {
		if err := read(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// table adds a private table of nftables and its managers.
func (n *Node) table(noted *noted, name string, all ...managers.Manager) {
	n.managers = append(n.managers, all...)
	n.read = append(n.read, func(s *dump.State) error {
		s.Tables = append(s.Tables, noted.table(name))
		return nil
	})
}

// hosts adds the table of the node's own policies, which the state has only while one is in force.
func (n *Node) hosts(c backend.Config, failsafe model.Failsafe) {
	noted := newNoted()
	hosts := boot.Manager(noted, noted, failsafe, c.TrafficMode)
	n.managers = append(n.managers, hosts)
	n.read = append(n.read, func(s *dump.State) error {
		if hosts.InForce() != nil {
			s.Tables = append(s.Tables, noted.table(nftables.HostsTable))
		}
		return nil
	})
}

// frames adds the table of bridges, which the state has only where one is needed.
func (n *Node) frames() {
	noted := newNoted()
	frames := managers.NewFrameManager(noted)
	n.managers = append(n.managers, frames)
	n.read = append(n.read, func(s *dump.State) error {
		if frames.Needed() {
			t := noted.table(nftables.PodSourcesTable)
			t.Family = "bridge"
			s.Tables = append(s.Tables, t)
		}
		return nil
	})
}

// flows adds flows and their managers.
func (n *Node) flows(noted *notedFlows, all ...managers.Manager) {
	n.managers = append(n.managers, all...)
	n.read = append(n.read, func(s *dump.State) error {
		flows, err := noted.all()
		s.Flows = append(s.Flows, flows...)
		return err
	})
}

// iptables adds the tables and sets of a backend iptables. It renders by the driver itself,
// which knows which of the kernel's tables a chain belongs to.
func (n *Node) iptables(c backend.Config) {
	table, sets := iptables.New(iptables.Options{}), newNoted()
	_, all := backend.IPTablesManagers(c, table, sets)
	n.managers = append(n.managers, all...)
	n.read = append(n.read, func(s *dump.State) error {
		for _, f := range model.Families() {
			read, err := dump.ParseIPTables(strings.NewReader(table.WantedText(f)), f)
			if err != nil {
				return fmt.Errorf("desired state of iptables: %w", err)
			}
			s.Tables = append(s.Tables, read...)
		}
		s.IPSets = sets.ipsets()
		return nil
	})
}

// run has managers take the updates and set what follows.
func run(all []managers.Manager, updates []model.Update) {
	for _, m := range all {
		for _, u := range updates {
			m.OnUpdate(u)
		}
	}
	for _, m := range all {
		m.CompleteDeferredWork()
	}
}

// knownHops are the hops of the model: nothing looks for others.
type knownHops struct{}

// SetPeers implements managers.Hops.
func (knownHops) SetPeers([]netip.Addr) {}

// notedFlows notes flows by their groups.
type notedFlows struct {
	owner  uint16
	groups map[string]func() []openflow.Flow
}

func newNotedFlows(owner uint16) *notedFlows {
	return &notedFlows{owner: owner, groups: map[string]func() []openflow.Flow{}}
}

// SetFlows implements managers.Flows.
func (n *notedFlows) SetFlows(key string, render func() []openflow.Flow) { n.groups[key] = render }

// RemoveFlows implements managers.Flows.
func (n *notedFlows) RemoveFlows(key string) { delete(n.groups, key) }

// all returns the flows; one that several groups have is there once.
func (n *notedFlows) all() ([]*flowtext.Flow, error) {
	var all []*flowtext.Flow
	seen := map[string]bool{}
	for _, key := range sortedKeys(n.groups) {
		for _, f := range n.groups[key]() {
			text := f.String()
			if seen[text] {
				continue
			}
			seen[text] = true
			read, err := flowtext.Parse(text)
			if err != nil || read.Foreign != "" {
				return nil, fmt.Errorf("flow %s, which is wanted, cannot be read: %v", text, err)
			}
			read.Cookie = uint64(n.owner) << 48
			all = append(all, read)
		}
	}
	return all, nil
}
