package managers

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/multitenant"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// MultitenantOptions are the inputs of a MultitenantManager beyond the model.
type MultitenantOptions struct {
	// Node is this node's name.
	Node                    string
	GatewayPort, TunnelPort uint32
	GatewayMAC              net.HardwareAddr
	// Cluster has the addresses of all nodes' pods.
	Cluster netip.Prefix
	// Services are the configured prefixes of Service addresses; the datastore may have more.
	Services []netip.Prefix
}

// MultitenantManager keeps all flows of the bridge with pipelineVariant: openshift, in the place of ForwardingManager, TunnelManager and the
// managers of policy.
//
// A pod has flows if its namespace has a number, and if the datastore knows it and no object selects it that would limit it and is not in
// force here: a NetworkPolicy, a policy of a tier, an EgressNetworkPolicy or an Egress. Else it is closed.
type MultitenantManager struct {
	options   MultitenantOptions
	flows     Flows
	services  servicePrefixes
	nodes     map[string]*model.Node
	host      []netip.Addr
	owners    *owners
	endpoints map[model.PodID]*model.Endpoint
	tenants   map[string]multitenant.Tenant
	egresses  map[netip.Addr]model.ObjectRef
	// global are the addresses of the pods with number 0 in the cluster, sorted.
	global []netip.Addr
	// ports are those at each address of a Service, addresses are those of each port.
	ports     map[serviceAddress]map[model.ServicePortID]multitenant.ServicePort
	addresses map[model.ServicePortID][]serviceAddress
	// newest is the pod with the newest interface at each port of the bridge.
	newest map[uint32]model.PodID
	// members are the pods of this node in each namespace.
	members map[string]map[model.PodID]bool
	// used has the tenant of each pod with flows, and numbers how many of them have each.
	used    map[model.PodID]multitenant.Tenant
	numbers map[multitenant.Tenant]int

	baseDirty     bool
	dirtyNodes    dirty[string]
	dirtyPods     dirty[model.PodID]
	dirtyServices dirty[serviceAddress]
	// refused are the objects that are not in force, unready the reasons why this node forwards nothing, partly those why it forwards
	// not everything.
	refused, unready, partly atomic.Pointer[[]model.Problem]
	closing                  atomic.Pointer[map[model.PodID]string]
}

// serviceAddress is an address of a Service.
type serviceAddress struct {
	namespace, name string
	address         netip.Addr
}

func (s serviceAddress) compare(o serviceAddress) int {
	return cmp.Or(cmp.Compare(s.namespace, o.namespace), cmp.Compare(s.name, o.name), s.address.Compare(o.address))
}

func (s serviceAddress) key() string {
	return fmt.Sprintf("service %s/%s %s", s.namespace, s.name, s.address)
}

// NewMultitenantManager returns a manager of these flows.
func NewMultitenantManager(o MultitenantOptions, flows Flows) *MultitenantManager {
	return &MultitenantManager{
		options: o, flows: flows, services: newServicePrefixes(o.Services), nodes: map[string]*model.Node{}, owners: newOwners(),
		endpoints: map[model.PodID]*model.Endpoint{}, tenants: map[string]multitenant.Tenant{}, egresses: map[netip.Addr]model.ObjectRef{},
		ports: map[serviceAddress]map[model.ServicePortID]multitenant.ServicePort{}, addresses: map[model.ServicePortID][]serviceAddress{},
		newest: map[uint32]model.PodID{}, members: map[string]map[model.PodID]bool{}, numbers: map[multitenant.Tenant]int{}, used: map[model.PodID]multitenant.Tenant{},
		dirtyNodes: dirty[string]{}, dirtyPods: dirty[model.PodID]{}, dirtyServices: dirty[serviceAddress]{},
	}
}

// SetMode does nothing: there is one pipeline.
func (m *MultitenantManager) SetMode(pipeline.Mode) {}

// Led implements Forwarding: the pipeline has no tiers.
func (m *MultitenantManager) Led() Tiers { return Tiers{} }

// Forwards reports whether the flows that were last set are those of the attachment as it is, or it is closed.
func (m *MultitenantManager) Forwards(a *model.Attachment) bool {
	now := m.owners.attachment(a.Pod)
	return now != nil && sameFlows(now, a)
}

// Refused returns the objects that are not in force: the pods that they select are closed. It may be called from any goroutine.
func (m *MultitenantManager) Refused() []model.Problem { return loaded(&m.refused) }

// Unready returns why this node forwards nothing. It may be called from any goroutine.
func (m *MultitenantManager) Unready() []model.Problem { return loaded(&m.unready) }

// Problems returns what of nodes is not carried. It may be called from any goroutine.
func (m *MultitenantManager) Problems() []model.Problem { return loaded(&m.partly) }

func loaded(p *atomic.Pointer[[]model.Problem]) []model.Problem {
	if all := p.Load(); all != nil {
		return *all
	}
	return nil
}

// OnUpdate takes updates of nodes, addresses of this node, attachments, endpoints, numbers, global pods, ports of Services, their prefixes, and Egresses.
func (m *MultitenantManager) OnUpdate(u model.Update) {
	for _, c := range m.owners.update(u) {
		for _, a := range []*model.Attachment{c.before, c.after} {
			if a != nil {
				m.dirtyPods.add(a.Pod)
			}
		}
	}
	switch u := u.(type) {
	case model.NodeUpdate:
		m.nodes[u.Node.Name] = u.Node
		m.touchNode(u.Node.Name)
	case model.NodeRemove:
		if u.Name != m.options.Node {
			delete(m.nodes, u.Name)
			m.touchNode(u.Name)
		}
	case model.HostAddressesUpdate:
		m.host, m.baseDirty = slices.Clone(u.Addresses), true
	case model.ServiceCIDRsUpdate:
		m.baseDirty = m.services.set(u.Prefixes) || m.baseDirty
	case model.AttachmentUpdate:
		m.dirtyPods.add(m.newest[u.Attachment.OFPort])
		m.newest[u.Attachment.OFPort] = u.Attachment.Pod
		m.join(u.Attachment.Pod, true)
	case model.AttachmentRemove:
		m.join(u.Pod, m.owners.attachment(u.Pod) != nil)
		maps.DeleteFunc(m.newest, func(_ uint32, id model.PodID) bool { return m.owners.attachment(id) == nil })
	default:
		m.onObject(u)
	}
}

// onObject takes the updates that follow from users' objects.
func (m *MultitenantManager) onObject(u model.Update) {
	switch u := u.(type) {
	case model.EndpointUpdate:
		m.endpoints[u.Endpoint.ID] = u.Endpoint
		m.dirtyPods.add(u.Endpoint.ID)
	case model.EndpointRemove:
		delete(m.endpoints, u.ID)
		m.dirtyPods.add(u.ID)
	case model.TenantUpdate:
		m.setTenant(u)
	case model.GlobalPodsUpdate:
		m.setGlobal(u.Addresses)
	case model.EgressesUpdate:
		m.setEgresses(u.Egresses)
	case model.ServicePortUpdate:
		m.setPort(u.Port.ID, u.Port.Frontends)
	case model.ServicePortRemove:
		m.setPort(u.ID, nil)
	}
}

func (m *MultitenantManager) touchNode(name string) {
	m.dirtyNodes.add(name)
	if name == m.options.Node {
		m.baseDirty = true
	}
}

// join notes whether a pod of a namespace is attached.
func (m *MultitenantManager) join(id model.PodID, attached bool) {
	m.dirtyPods.add(id)
	if attached {
		if m.members[id.Namespace] == nil {
			m.members[id.Namespace] = map[model.PodID]bool{}
		}
		m.members[id.Namespace][id] = true
		return
	}
	delete(m.members[id.Namespace], id)
	if len(m.members[id.Namespace]) == 0 {
		delete(m.members, id.Namespace)
	}
}

func (m *MultitenantManager) setTenant(u model.TenantUpdate) {
	now := multitenant.Tenant{Number: u.Number, Global: u.Global}
	if m.tenants[u.Namespace] == now {
		return
	}
	if m.tenants[u.Namespace] = now; now == (multitenant.Tenant{}) {
		delete(m.tenants, u.Namespace)
	}
	for id := range m.members[u.Namespace] {
		m.dirtyPods.add(id)
	}
	for s := range m.ports {
		if s.namespace == u.Namespace {
			m.dirtyServices.add(s)
		}
	}
}

// setGlobal takes the addresses of all global pods, and marks the peers dirty whose pods have changed.
func (m *MultitenantManager) setGlobal(all []netip.Addr) {
	before := m.global
	m.global = all
	for name, n := range m.nodes {
		if !slices.Equal(within(before, n), within(all, n)) {
			m.dirtyNodes.add(name)
		}
	}
}

// within returns the IPv4 addresses that a node's pods have.
func within(all []netip.Addr, n *model.Node) (own []netip.Addr) {
	p := n.PodCIDR(model.IPv4)
	for _, a := range all {
		if p.IsValid() && p.Contains(a) {
			own = append(own, a)
		}
	}
	return own
}

func (m *MultitenantManager) setEgresses(all []model.EgressAddress) {
	now := map[netip.Addr]model.ObjectRef{}
	for pod, e := range selected(all) {
		now[pod] = e.Object
	}
	for _, addresses := range []map[netip.Addr]model.ObjectRef{m.egresses, now} {
		for a := range addresses {
			if owner := m.owners.owner(a); owner != nil && m.egresses[a] != now[a] {
				m.dirtyPods.add(owner.Pod)
			}
		}
	}
	m.egresses = now
}

// setPort takes the addresses inside the cluster at which a port of a Service is.
func (m *MultitenantManager) setPort(id model.ServicePortID, frontends []model.Frontend) {
	for _, s := range m.addresses[id] {
		delete(m.ports[s], id)
		m.dirtyServices.add(s)
	}
	delete(m.addresses, id)
	for _, f := range frontends {
		if f.Kind != model.ClusterIP || model.FamilyOf(f.Addr) != model.IPv4 {
			continue
		}
		s := serviceAddress{id.Namespace, id.Name, f.Addr.Unmap()}
		if m.ports[s] == nil {
			m.ports[s] = map[model.ServicePortID]multitenant.ServicePort{}
		}
		m.ports[s][id] = multitenant.ServicePort{Protocol: id.Protocol, Port: f.Port}
		m.addresses[id] = append(m.addresses[id], s)
		m.dirtyServices.add(s)
	}
}

// CompleteDeferredWork sets the flows that changed. Before this node is known there are none.
func (m *MultitenantManager) CompleteDeferredWork() {
	if m.nodes[m.options.Node] == nil {
		return
	}
	node, known := m.self()
	if m.baseDirty {
		m.baseDirty = false
		m.set("base", known, func() []openflow.Flow { return multitenant.Base(node) })
		for name := range m.nodes {
			m.dirtyNodes.add(name)
		}
		for s := range m.ports {
			m.dirtyServices.add(s)
		}
	}
	peers := m.dirtyNodes.take(strings.Compare)
	for _, name := range peers {
		if name != m.options.Node {
			p := m.nodes[name]
			global := []netip.Addr{}
			if p != nil {
				global = within(m.global, p)
			}
			m.set("peer "+name, known && m.fault(p) == "", func() []openflow.Flow { return multitenant.Peer(node, p, global...) })
			m.set("ends "+name, known && p != nil, func() []openflow.Flow { return multitenant.Ends(p) })
		}
	}
	if len(peers) > 0 {
		m.judgeNodes()
	}
	pods := m.dirtyPods.take(model.PodID.Compare)
	for _, id := range pods {
		m.setPod(id)
	}
	if len(pods) > 0 {
		m.judgePods()
	}
	for _, s := range m.dirtyServices.take(serviceAddress.compare) {
		m.setService(node, known, s)
	}
}

func (m *MultitenantManager) set(key string, used bool, render func() []openflow.Flow) {
	if used {
		m.flows.SetFlows(key, render)
	} else {
		m.flows.RemoveFlows(key)
	}
}

// self returns this node, and whether it can forward.
func (m *MultitenantManager) self() (multitenant.Node, bool) {
	n, o := m.nodes[m.options.Node], m.options
	node := multitenant.Node{
		GatewayPort: o.GatewayPort, TunnelPort: o.TunnelPort, GatewayMAC: o.GatewayMAC, Gateway: n.Gateway(model.IPv4).Unmap(),
		PodPrefix: n.PodCIDR(model.IPv4), ClusterPrefix: o.Cluster, ServicePrefixes: slices.DeleteFunc(slices.Clone(m.services.all), o.Cluster.Overlaps),
	}
	for _, a := range union(nil, hostPrefixes(slices.Concat(n.Addresses, m.host))) {
		node.Addresses = append(node.Addresses, a.Addr())
	}
	node.Addresses = slices.DeleteFunc(node.Addresses, func(a netip.Addr) bool { return a == node.Gateway })
	return node, m.fault(n) == ""
}

// hostPrefixes returns addresses as prefixes.
func hostPrefixes(all []netip.Addr) (prefixes []netip.Prefix) {
	for _, a := range all {
		prefixes = append(prefixes, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
	}
	return prefixes
}

// fault returns why a node has no flows, or "".
func (m *MultitenantManager) fault(n *model.Node) string {
	if n == nil {
		return "there is no such node"
	}
	switch p := n.PodCIDR(model.IPv4); {
	case !p.IsValid():
		return "it has no IPv4 pod prefix"
	case p.Bits() < m.options.Cluster.Bits() || !m.options.Cluster.Contains(p.Addr()):
		return fmt.Sprintf("its pod prefix %s is not in clusterCIDR %s", p, m.options.Cluster)
	case m.options.Cluster.Contains(n.Outer()):
		return fmt.Sprintf("its address %s is in clusterCIDR %s", n.Outer(), m.options.Cluster)
	case !n.Outer().Is4():
		return "its first address is not an IPv4 address, which the tunnel needs"
	}
	return ""
}

// judgeNodes notes the nodes without flows, and that IPv6 is not carried.
func (m *MultitenantManager) judgeNodes() {
	var unready, partly []model.Problem
	for _, p := range m.services.all {
		if m.options.Cluster.Overlaps(p) {
			partly = append(partly, model.Problem{Object: model.NodeRef(m.options.Node), Reason: fmt.Sprintf("Services in %s are not reached: it overlaps clusterCIDR %s", p, m.options.Cluster)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		why, own := m.fault(n), name == m.options.Node
		problem := func(text string) model.Problem {
			return model.Problem{Object: model.NodeRef(name), Reason: "with pipelineVariant: openshift " + text}
		}
		switch {
		case why != "" && own:
			unready = append(unready, problem("the pods of this node neither send nor receive anything: "+why))
		case why != "":
			partly = append(partly, problem("the pods of the node are not reached: "+why))
		case own && n.PodCIDR(model.IPv6).IsValid():
			partly = append(partly, problem("IPv6 packets of pods are dropped"))
		}
	}
	m.unready.Store(&unready)
	m.partly.Store(&partly)
}

// setPod sets the flows of a pod.
func (m *MultitenantManager) setPod(id model.PodID) {
	a, key := m.owners.attachment(id), "pod "+id.String()
	tenant := m.tenants[id.Namespace]
	var flows []openflow.Flow
	if a != nil && m.endpoints[id] != nil && m.closed(a) == "" {
		own := *a
		own.Addresses = m.addressesOf(a)
		flows = multitenant.Endpoint(&own, tenant)
	}
	m.set(key, flows != nil, func() []openflow.Flow { return flows })
	now := multitenant.Tenant{}
	if flows != nil {
		now = tenant
	}
	m.use(id, now)
}

// use notes the number of a pod with flows, and sets the flow of table 80 once for each number.
func (m *MultitenantManager) use(id model.PodID, now multitenant.Tenant) {
	before, had := m.used[id]
	if had && before == now {
		return
	}
	if had {
		if m.numbers[before]--; m.numbers[before] == 0 {
			delete(m.numbers, before)
			m.flows.RemoveFlows(numberKey(before))
		}
		delete(m.used, id)
	}
	if now == (multitenant.Tenant{}) {
		return
	}
	m.used[id] = now
	if m.numbers[now]++; m.numbers[now] == 1 {
		m.flows.SetFlows(numberKey(now), func() []openflow.Flow { return multitenant.Tenants(now) })
	}
}

func numberKey(t multitenant.Tenant) string { return fmt.Sprintf("number %d", t.Number) }

// setService sets the flows of an address of a Service.
func (m *MultitenantManager) setService(node multitenant.Node, known bool, s serviceAddress) {
	service := multitenant.Service{Address: s.address}
	for _, id := range slices.SortedFunc(maps.Keys(m.ports[s]), compareServicePorts) {
		service.Ports = append(service.Ports, m.ports[s][id])
	}
	if len(service.Ports) == 0 {
		delete(m.ports, s)
	}
	tenant := m.tenants[s.namespace]
	m.set(s.key(), known && len(service.Ports) > 0, func() []openflow.Flow { return multitenant.ServiceFlows(node, service, tenant) })
}
