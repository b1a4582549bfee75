package managers

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// SwitchPolicyManager keeps policies, groups and pods in the store of policy
// flows, for the backend that judges in the switch.
//
// A pod that is attached but unknown to the datastore is closed. A pod whose interface
// has gone is closed as well until forwarding has no flows for it: without policy flows
// for a port, the switch would pass all its packets.
type SwitchPolicyManager struct {
	node      string
	store     *policyflows.Store
	endpoints map[model.PodID]*model.Endpoint
	owners    *owners
	// pods has the pod of an interface that is the newest of its pod, ports the
	// newest interface of a port number.
	pods  map[string]model.PodID
	ports map[uint32]string
	dirty dirty[string]
	tiers tierUse

	mu sync.Mutex
	// needed are the tiers of the policies in the store, led those that forwarding leads packets to.
	needed, led Tiers
	// leaving are former attachments, each under a name of its own; gone are those without forwarding.
	leaving map[string]*model.Attachment
	gone    map[string]bool
}

// NewSwitchPolicyManager returns a manager for the node of that name.
func NewSwitchPolicyManager(node string, store *policyflows.Store) *SwitchPolicyManager {
	return &SwitchPolicyManager{
		node: node, store: store, endpoints: map[model.PodID]*model.Endpoint{}, owners: newOwners(),
		pods: map[string]model.PodID{}, ports: map[uint32]string{}, dirty: dirty[string]{}, tiers: newTierUse(),
		leaving: map[string]*model.Attachment{}, gone: map[string]bool{},
	}
}

// OnUpdate takes updates of policies, groups, endpoints and attachments, this
// node's NodeUpdate, a DenialsUpdate and a LogsUpdate.
func (m *SwitchPolicyManager) OnUpdate(u model.Update) {
	m.tiers.update(u)
	switch u := u.(type) {
	case model.NodeUpdate:
		if u.Node.Name == m.node {
			m.store.SetFamilies(familiesOf(u.Node))
		}
	case model.GroupUpdate:
		if u.Group.Kind == model.Networks {
			m.store.UpdateNetworks(u.Group.ID, u.Added, u.Removed)
		} else {
			m.store.UpdateGroup(u.Group.ID, u.Added, u.Removed)
		}
	case model.GroupRemove:
		m.store.RemoveGroup(u.ID)
	case model.PolicyUpdate:
		m.store.SetPolicy(u.Policy)
	case model.PolicyRemove:
		m.store.RemovePolicy(u.ID)
	case model.EndpointUpdate:
		m.endpoints[u.Endpoint.ID] = u.Endpoint
		m.touch(m.owners.attachment(u.Endpoint.ID))
	case model.EndpointRemove:
		delete(m.endpoints, u.ID)
		m.touch(m.owners.attachment(u.ID))
	case model.AttachmentUpdate:
		m.attach(u)
	case model.AttachmentRemove:
		m.detach(u)
	case model.DenialsUpdate:
		m.store.Report(u.Reported)
	case model.LogsUpdate:
		m.store.Log(u.Reported)
	}
}

// MACs returns the MAC address of the pod at each port.
func (m *SwitchPolicyManager) MACs() map[uint32]net.HardwareAddr {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[uint32]net.HardwareAddr{}
	for port, name := range m.ports {
		if a := m.owners.attachment(m.pods[name]); a != nil && a.OFPort == port {
			all[port] = a.MAC
		}
	}
	return all
}

// Forwarded is called after forwarding was programmed. Removed attachments without flows need no longer be closed, and
// packets may meet tiers now that they were led past; Forwarded reports whether there is such a change. It may be called
// while the manager is in use.
func (m *SwitchPolicyManager) Forwarded(f Forwarding) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, a := range m.leaving {
		if !f.Forwards(a) {
			m.gone[name] = true
		}
	}
	before := m.led.cover(m.needed)
	m.led = f.Led()
	return len(m.gone) > 0 || !before && m.led.cover(m.needed)
}

// Led reports whether packets meet the tiers of all policies in the store: forwarding leads them there.
func (m *SwitchPolicyManager) Led() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.led.cover(m.needed)
}

// CompleteDeferredWork brings the store's pods, and all flows, up to date.
func (m *SwitchPolicyManager) CompleteDeferredWork() {
	m.mu.Lock()
	m.needed = m.tiers.tiers()
	// Forwarding may stop to lead packets to a tier without policies at any time, also when it has some again.
	m.led = m.led.and(m.needed)
	for _, name := range slices.Sorted(maps.Keys(m.gone)) {
		delete(m.leaving, name)
		m.dirty.add(name)
	}
	clear(m.gone)
	for _, name := range m.dirty.take(strings.Compare) {
		m.set(name)
	}
	m.mu.Unlock()
	m.store.Complete()
}

func (m *SwitchPolicyManager) touch(a *model.Attachment) {
	if a != nil {
		m.dirty.add(a.Interface)
	}
}

// attach takes an interface, which may be a newer one of its pod, or have the
// addresses or the port number of another one.
func (m *SwitchPolicyManager) attach(u model.AttachmentUpdate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := u.Attachment
	maps.DeleteFunc(m.leaving, func(name string, a *model.Attachment) bool {
		m.dirty.add(name)
		return sameFlows(a, now)
	})
	if old := m.owners.attachment(now.Pod); old != nil && !sameFlows(old, now) {
		m.leave(old)
	}
	m.pods[now.Interface] = now.Pod
	if other := m.ports[now.OFPort]; other != "" {
		m.dirty.add(other)
	}
	m.ports[now.OFPort] = now.Interface
	m.touch(now)
	m.change(u)
}

func (m *SwitchPolicyManager) detach(u model.AttachmentRemove) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.owners.attachment(u.Pod); old != nil && old.Interface == u.Interface {
		m.leave(old)
	}
	m.change(u)
}

// leave records that an attachment has ended. Its port number stays its own until a newer attachment has it.
func (m *SwitchPolicyManager) leave(a *model.Attachment) {
	name := leavingPrefix + a.Interface
	for m.leaving[name] != nil {
		name = leavingPrefix + name
	}
	m.leaving[name] = a
	delete(m.gone, name)
	m.dirty.add(name)
	if m.pods[a.Interface] != a.Pod {
		return // another pod's by now
	}
	delete(m.pods, a.Interface)
	m.dirty.add(a.Interface)
	if m.ports[a.OFPort] == a.Interface {
		m.ports[a.OFPort] = name
	}
}

// leavingPrefix is not that of any interface.
const leavingPrefix = "leaving "

// sameFlows reports whether forwarding has the same flows for both.
func sameFlows(a, b *model.Attachment) bool {
	return a.Pod == b.Pod && a.Interface == b.Interface && a.OFPort == b.OFPort && slices.Equal(a.Addresses, b.Addresses)
}

// change marks the interfaces dirty whose addresses have a new owner.
func (m *SwitchPolicyManager) change(u model.Update) {
	for _, c := range m.owners.update(u) {
		m.touch(c.before)
		m.touch(c.after)
		for name, a := range m.leaving {
			if slices.Contains(a.Addresses, c.addr) {
				m.dirty.add(name)
			}
		}
	}
}

// set brings the store's pod of an interface up to date.
func (m *SwitchPolicyManager) set(name string) {
	id, attached := m.pods[name]
	a := m.leaving[name]
	if attached {
		a = m.owners.attachment(id)
	}
	if a == nil {
		m.store.RemovePod(name)
		maps.DeleteFunc(m.ports, func(_ uint32, owner string) bool { return owner == name })
		return
	}
	p := policyflows.Pod{Interface: name, ID: a.Pod}
	if m.ports[a.OFPort] == name {
		p.Port = a.OFPort
	}
	p.Addresses = slices.DeleteFunc(slices.Clone(a.Addresses), func(addr netip.Addr) bool {
		owner := m.owners.owner(addr)
		return owner != nil && (!attached || owner.Interface != name)
	})
	if e := m.endpoints[id]; attached && e != nil {
		p.Open, p.Ingress, p.Egress = true, e.Ingress, e.Egress
	}
	m.store.SetPod(p)
}

// familiesOf are those in which the node has pods.
func familiesOf(n *model.Node) []model.Family {
	var families []model.Family
	for _, f := range model.Families() {
		if n.PodCIDR(f).IsValid() {
			families = append(families, f)
		}
	}
	return families
}
