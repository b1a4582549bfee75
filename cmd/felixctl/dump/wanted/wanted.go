package wanted

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
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
	if name == "" {
		name = m.Backend
	}
	c := backend.Config{
		Name: name, Node: m.Node, Masquerade: m.Settings.Masquerade, TrafficMode: m.Settings.TrafficMode, TunnelPort: m.Settings.TunnelPort,
		Layout: m.Settings.NFTablesLayout, Kept: m.KeptInMaps,
		Switch: backend.Switch{Node: pipeline.Node{
			GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: ovsdb.GatewayMAC(m.Node),
			Userspace: m.Settings.Userspace, ServiceCIDRs: m.Settings.ServiceCIDRs, Offload: m.Settings.Offload, SNAT: backend.SNAT(m.Settings.SNAT),
		}},
	}
	updates := m.Updates()
	s := &dump.State{}
	var err error
	switch name {
	case config.NFTables:
		noted := newNoted()
		_, all := backend.NFTablesManagers(c, noted)
		run(all, updates)
		s.Tables = []*dump.Table{noted.table(nftables.DefaultTable)}
	case config.IPTables, config.IPTablesLegacy, config.IPTablesNFT:
		err = inIPTables(s, c, updates)
	case config.OpenFlow:
		noted, flows := newNoted(), newNotedFlows(pipeline.PolicyOwner)
		_, all := backend.OpenFlowManagers(c, flows, !m.RatesUnbounded, noted)
		run(all, updates)
		s.Tables = []*dump.Table{noted.table(nftables.HostTable)}
		s.Flows, err = flows.all()
	default:
		err = fmt.Errorf("backend %q is not one of %s", name, strings.Join(config.BackendNames(), ", "))
	}
	if err != nil {
		return nil, err
	}
	if m.Settings.TrafficMode == model.PolicyOnly {
		noted := newNoted()
		run([]managers.Manager{backend.PodSourceManager(c, noted, noted)}, updates)
		s.Tables = append(s.Tables, noted.table(nftables.PodSourcesTable))
		noted = newNoted()
		frames := managers.NewFrameManager(noted)
		run([]managers.Manager{frames}, updates)
		if frames.Needed() {
			t := noted.table(nftables.PodSourcesTable)
			t.Family = "bridge"
			s.Tables = append(s.Tables, t)
		}
		return s, nil
	}
	if m.Settings.TrafficMode != model.Encap && m.HopsKnown {
		noted := newNoted()
		run([]managers.Manager{backend.SenderManager(c, noted, noted, knownHops{})}, updates)
		s.Tables = append(s.Tables, noted.table(nftables.SendersTable))
	}
	if c.TunnelPort != 0 {
		noted := newNoted()
		run([]managers.Manager{backend.TunnelPortManager(c, noted, noted)}, updates)
		s.Tables = append(s.Tables, noted.table(nftables.TunnelTable))
	}
	if len(m.Egresses) > 0 {
		noted := newNoted()
		run([]managers.Manager{backend.EgressManager(c, noted, noted)}, updates)
		s.Tables = append(s.Tables, noted.table(nftables.EgressTable))
	}
	forwarding := newNotedFlows(pipeline.Owner)
	run(backend.ForwardingManagers(c, forwarding), updates)
	flows, err := forwarding.all()
	s.Flows = append(s.Flows, flows...)
	return s, err
}

// knownHops are the hops of the model: nothing looks for others.
type knownHops struct{}

// SetPeers implements managers.Hops.
func (knownHops) SetPeers([]netip.Addr) {}

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

// inIPTables renders by the driver itself, which knows which of the kernel's tables
// a chain belongs to.
func inIPTables(s *dump.State, c backend.Config, updates []model.Update) error {
	table, sets := iptables.New(iptables.Options{}), newNoted()
	_, all := backend.IPTablesManagers(c, table, sets)
	run(all, updates)
	for _, f := range model.Families() {
		read, err := dump.ParseIPTables(strings.NewReader(table.WantedText(f)), f)
		if err != nil {
			return fmt.Errorf("what is wanted of iptables: %w", err)
		}
		s.Tables = append(s.Tables, read...)
	}
	s.IPSets = sets.ipsets()
	return nil
}

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
