package managers

import (
	"iter"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/gaissmai/bart"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// TranslationManager keeps the source that packets of pods must have. The kernel binds the source of a connection at its first packet,
// and each packet keeps the entry alive: a flow without answers goes on with a source that no rule gives any more.
type TranslationManager struct {
	node       string
	masquerade bool
	// switched is set if the bridge translates IPv4.
	switched bool
	nodes    map[string]*model.Node
	egresses []model.EgressAddress
	// services are the prefixes of Service addresses, by the settings and by the cluster.
	services, known []netip.Prefix
	// former are all addresses of Egresses that this process has seen.
	former map[netip.Addr]bool
	dirty  bool
	now    atomic.Pointer[Translations]
}

// NewTranslationManager returns a manager for the node of that name.
func NewTranslationManager(node string, masquerade, switched bool, services []netip.Prefix) *TranslationManager {
	return &TranslationManager{node: node, masquerade: masquerade, switched: switched, services: services, nodes: map[string]*model.Node{}, former: map[netip.Addr]bool{}}
}

// OnUpdate takes updates of nodes, Services' prefixes and Egresses.
func (m *TranslationManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		m.nodes[u.Node.Name], m.dirty = u.Node, true
	case model.NodeRemove:
		delete(m.nodes, u.Name)
		m.dirty = true
	case model.ServiceCIDRsUpdate:
		m.known, m.dirty = u.Prefixes, true
	case model.EgressesUpdate:
		m.egresses, m.dirty = u.Egresses, true
	}
}

// CompleteDeferredWork renders the sources anew if they may have changed.
func (m *TranslationManager) CompleteDeferredWork() {
	self := m.nodes[m.node]
	if !m.dirty || self == nil {
		return
	}
	m.dirty = false
	t := &Translations{masquerade: m.masquerade, switched: m.switched, address: self.Address(model.IPv4).Unmap(), selected: map[netip.Addr]egressSource{}, egresses: map[netip.Addr]bool{}}
	for name, n := range m.nodes {
		for _, p := range n.PodCIDRs {
			t.cluster.Insert(p)
			if name == m.node {
				t.own.Insert(p)
			} else {
				t.peers.Insert(p)
			}
		}
		for _, a := range n.Addresses {
			t.nodes.Insert(single(a))
			if name != m.node && n.PodCIDR(model.FamilyOf(a.Unmap())).IsValid() {
				t.cluster.Insert(single(a)) // else there is no way by which packets keep their source
			}
		}
	}
	for _, p := range slices.Concat(m.services, m.known) {
		t.services.Insert(p)
	}
	for _, e := range m.egresses {
		if e.Address.IsValid() {
			m.former[e.Address] = true
		}
	}
	for a := range m.former {
		t.egresses[a] = true
	}
	for pod, e := range selected(m.egresses) {
		s := egressSource{}
		if e.Address.IsValid() && e.Node == m.node {
			s.address = e.Address
		} else {
			s.away = e.Address.IsValid() && e.Node != "" && hasPod(self, pod)
		}
		t.selected[pod] = s
	}
	m.now.Store(t)
}

// Now returns the sources of the last CompleteDeferredWork, nil before the node is known. It may be called from any goroutine.
func (m *TranslationManager) Now() *Translations { return m.now.Load() }

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()) }

// selected returns the pods of Egresses, each with the one that decides about it: the first.
func selected(all []model.EgressAddress) iter.Seq2[netip.Addr, *model.EgressAddress] {
	return func(yield func(netip.Addr, *model.EgressAddress) bool) {
		decided := map[netip.Addr]bool{}
		for i := range all {
			for _, pod := range all[i].Pods {
				if !decided[pod] && !yield(pod, &all[i]) {
					return
				}
				decided[pod] = true
			}
		}
	}
}

// egressSource is what an Egress says about a pod. Without an address and away, its packets to the outside are dropped.
type egressSource struct {
	// address is the source, if this node holds it.
	address netip.Addr
	// away is set if another node gives packets of this pod of ours their source.
	away bool
}

// Translations are the sources that packets of pods must have at one time.
type Translations struct {
	masquerade, switched bool
	// address is this node's IPv4 address.
	address netip.Addr
	// own are the pod prefixes of this node, peers those of the others. cluster has both, and the addresses of peers. nodes are
	// the addresses of all nodes, services those of Services.
	own, peers, cluster, nodes, services bart.Lite
	selected                             map[netip.Addr]egressSource
	// egresses are all addresses that are or were those of Egresses.
	egresses map[netip.Addr]bool
}

// Wrong reports whether an unanswered entry of the kernel gives its packets another source than they must have now. An answered
// connection keeps the source that it began with. Host reports the host's own addresses. InSwitch says that the bridge judges, by
// sources that the host must keep.
//
// Without masquerade, other programs may translate packets to the outside. Only the addresses of Egresses are ours then.
func (t *Translations) Wrong(k *conntrack.Connection, host func(netip.Addr) bool, inSwitch bool) bool {
	from, to := k.Original.Src, k.Reply.Src
	if k.Replied || host(from) || host(to) || to.IsMulticast() || from == to {
		return false
	}
	kept := k.Reply.Dst == from
	switch {
	case t.own.Contains(to): // a Service leads back to this node
		return inSwitch && !kept
	case t.cluster.Contains(to):
		return t.own.Contains(from) && !kept
	case t.nodes.Contains(to):
		return false
	}
	return t.wrongOutside(k, kept)
}

// wrongOutside is Wrong for packets that leave the cluster.
func (t *Translations) wrongOutside(k *conntrack.Connection, kept bool) bool {
	away := k.Mark&rules.MarkAway != 0
	own := t.own.Contains(k.Original.Src)
	egress, decides := t.selected[k.Original.Src]
	switch {
	case !own && !t.peers.Contains(k.Original.Src):
		return false
	case decides && egress.address.IsValid():
		return away || k.Reply.Dst != egress.address
	case decides && egress.away:
		return !away || !kept
	case decides, away: // dropped
		return true
	case own && t.masquerade && kept, own && t.bySwitch(k):
		return true
	}
	return t.egresses[k.Reply.Dst]
}

// bySwitch reports whether the bridge translates packets of this connection to the outside, not the host.
func (t *Translations) bySwitch(k *conntrack.Connection) bool {
	return t.switched && k.Original.Src.Is4() && k.Original.Dst == k.Reply.Src && hasPorts(k)
}

// WrongInSwitch reports whether the bridge leads packets of an unanswered entry of its zone of policy to the outside by the wrong way:
// translated by itself although an Egress decides, or to the host, which would drop them.
func (t *Translations) WrongInSwitch(k *conntrack.Connection) bool {
	from, to := k.Original.Src, k.Original.Dst
	if k.Replied || !from.Is4() || !t.own.Contains(from) || t.cluster.Contains(to) || t.nodes.Contains(to) || t.services.Contains(to) || to.IsMulticast() {
		return false
	}
	_, egress := t.selected[from]
	return (egress || !hasPorts(k)) == (k.Mark == pipeline.SNATMark)
}

// hasPorts reports whether the bridge can translate packets of a connection: it makes connections unique by their ports.
func hasPorts(k *conntrack.Connection) bool {
	return k.Original.Protocol == uint8(model.TCP) || k.Original.Protocol == uint8(model.UDP)
}

// WrongAddress reports whether an entry of the zone in which the bridge translates has another address than the node's. An entry of a protocol
// that the host translates is of an earlier version, and takes the answers of the host's.
func (t *Translations) WrongAddress(k *conntrack.Connection) bool {
	return !k.Replied && k.Reply.Dst != t.address || k.Mark == pipeline.SNATMark && !hasPorts(k)
}

// Switched reports whether the bridge translates.
func (t *Translations) Switched() bool { return t.switched }
