package managers

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// HostOptions are the inputs of a HostManager beyond the model.
type HostOptions struct {
	// Node is this node's name.
	Node string
	// Services are the configured prefixes of Service addresses; the datastore may
	// have more.
	Services []netip.Prefix
	// Hairpin returns the address that stands for the source of a pod which reaches
	// itself through a Service.
	Hairpin func(model.Family) netip.Addr
	// Masquerade hides pods behind the node's address on the way out of the
	// cluster.
	Masquerade bool
	// SNATBridge is the host's interface with the node's address if the switch does that for IPv4; else empty.
	SNATBridge string
	// Numbered is set if the switch judges by numbers of tenants alone.
	Numbered bool
}

// HostManager keeps the host's chains and sets for the backend that judges in the
// switch (rules.Host): source addresses must be true when packets come there.
type HostManager struct {
	options  HostOptions
	renderer *rules.Renderer
	chains   Chains
	sets     ipsets.Sets
	nodes    map[string]*model.Node
	networks podNetworks
	// peers are as those of StaticManager.
	peers     *podNetworks
	services  servicePrefixes
	endpoints map[model.PodID]*model.Endpoint
	owners    *owners
	// pods are the members that the sets of pods were given, by address.
	pods       map[netip.Addr]hostPod
	dirtyNodes dirty[string]
	dirtyPods  dirty[model.PodID]
	dirtyAddrs dirty[netip.Addr]
}

// hostPod has the sets that contain an address.
type hostPod struct{ hairpin, egress bool }

// NewHostManager returns a manager that wants the sets, which are empty yet.
func NewHostManager(options HostOptions, renderer *rules.Renderer, chains Chains, sets ipsets.Sets) *HostManager {
	for _, f := range model.Families() {
		for _, s := range rules.HostSets(f) {
			sets.CreateSet(s)
		}
	}
	return &HostManager{
		options: options, renderer: renderer, chains: chains, sets: sets,
		nodes: map[string]*model.Node{}, networks: newPodNetworks(sets), peers: routedPeers(renderer, sets), services: newServicePrefixes(options.Services), endpoints: map[model.PodID]*model.Endpoint{},
		owners: newOwners(), pods: map[netip.Addr]hostPod{},
		dirtyNodes: dirty[string]{}, dirtyPods: dirty[model.PodID]{}, dirtyAddrs: dirty[netip.Addr]{},
	}
}

// OnUpdate takes updates of nodes, endpoints and attachments, and the prefixes of
// Services.
func (m *HostManager) OnUpdate(u model.Update) {
	for _, c := range m.owners.update(u) {
		m.dirtyAddrs.add(c.addr)
	}
	switch u := u.(type) {
	case model.NodeUpdate:
		m.nodes[u.Node.Name] = u.Node
		m.dirtyNodes.add(u.Node.Name)
	case model.NodeRemove:
		delete(m.nodes, u.Name)
		m.dirtyNodes.add(u.Name)
	case model.ServiceCIDRsUpdate:
		if m.services.set(u.Prefixes) {
			m.dirtyNodes.add(m.options.Node)
		}
	case model.EndpointUpdate:
		m.endpoints[u.Endpoint.ID] = u.Endpoint
		m.dirtyPods.add(u.Endpoint.ID)
	case model.EndpointRemove:
		delete(m.endpoints, u.ID)
		m.dirtyPods.add(u.ID)
	}
}

// CompleteDeferredWork brings chains and sets up to date.
func (m *HostManager) CompleteDeferredWork() {
	for _, name := range m.dirtyNodes.take(strings.Compare) {
		n := m.nodes[name]
		m.networks.update(name, n)
		if m.peers != nil && name != m.options.Node {
			m.peers.update(name, n)
		}
		if name == m.options.Node && n != nil {
			for _, c := range m.renderer.Node().Host(m.host(n)) {
				m.chains.UpdateChain(c)
			}
		}
	}
	for _, id := range m.dirtyPods.take(model.PodID.Compare) {
		if a := m.owners.attachment(id); a != nil {
			for _, addr := range a.Addresses {
				m.dirtyAddrs.add(addr)
			}
		}
	}
	for _, a := range m.dirtyAddrs.take(netip.Addr.Compare) {
		m.setAddress(a)
	}
}

func (m *HostManager) host(n *model.Node) rules.Host {
	h := rules.Host{Node: n, Services: slices.Clone(m.services.all), Masquerade: m.options.Masquerade, Numbered: m.options.Numbered}
	if a := n.Address(model.IPv4); m.options.SNATBridge != "" && a.IsValid() {
		h.SNAT = &rules.SNAT{Address: a.Unmap(), Bridge: m.options.SNATBridge}
	}
	for _, f := range model.Families() {
		h.Hairpins = append(h.Hairpins, m.options.Hairpin(f))
	}
	return h
}

// setAddress updates the sets for the present owner of an address. A pod that the
// datastore does not know may send nothing.
func (m *HostManager) setAddress(a netip.Addr) {
	var now hostPod
	if owner := m.owners.owner(a); owner != nil {
		e := m.endpoints[owner.Pod]
		now = hostPod{hairpin: true, egress: e == nil || !e.Egress.Empty()}
	}
	old, f := m.pods[a], model.FamilyOf(a)
	m.setMember(rules.HairpinSet(f), a, old.hairpin, now.hairpin)
	m.setMember(rules.EgressSet(f), a, old.egress, now.egress)
	if m.pods[a] = now; !now.hairpin {
		delete(m.pods, a)
	}
}

func (m *HostManager) setMember(set string, a netip.Addr, had, has bool) {
	members := []model.Member{model.AddressMember(a)}
	switch {
	case had && !has:
		m.sets.RemoveMembers(set, members)
	case has && !had:
		m.sets.AddMembers(set, members)
	}
}
