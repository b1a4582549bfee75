package managers

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// ServiceTable is the table of Services to its manager.
type ServiceTable interface {
	Chains
	UpdateSet(tables.LargeSet)
	RemoveSet(name string)
	Put(set, key, value string)
	Remove(set, key string)
}

// ServiceManager keeps the table of Services: a change of a Service or an endpoint is elements. Chains come only for a number of
// endpoints, or a time for which clients are remembered, that no other Service has.
type ServiceManager struct {
	node  string
	table ServiceTable
	// nodePorts are the prefixes of addresses on which NodePorts are served.
	nodePorts []netip.Prefix
	ports     map[model.ServicePortID]*model.ServicePort
	own       *model.Node // nil until it is known
	// pending are the ports to program, nil for those that are gone.
	pending map[model.ServicePortID]*model.ServicePort
	moved   bool // own has changed
	tcp     bool // EndTCP
	known   bool // all ports have come once
	// denials is the last DenialsUpdate that is not rendered yet.
	denials *bool
	begun   bool
	// hostStranded is set while connections of the host may lead to former endpoints, or past the first ones, bridgeStranded while those that the bridge leads may.
	hostStranded, bridgeStranded bool
	// picks and shared count the uses of chains, and of elements that several ports have.
	picks  map[rules.ServicePick]int
	shared map[sharedElement]int
	// prefixes are the boundaries in the sets of prefixes.
	prefixes map[string][]string
}

// NewServiceManager returns a manager for the node of that name. Without prefixes of node ports, they are served on all addresses.
func NewServiceManager(node string, nodePorts []netip.Prefix, table ServiceTable) *ServiceManager {
	if len(nodePorts) == 0 {
		nodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	return &ServiceManager{
		node: node, table: table, nodePorts: nodePorts, moved: true, denials: new(bool),
		ports: map[model.ServicePortID]*model.ServicePort{}, pending: map[model.ServicePortID]*model.ServicePort{},
		picks: map[rules.ServicePick]int{}, shared: map[sharedElement]int{}, prefixes: map[string][]string{},
	}
}

// OnUpdate takes updates of Services and nodes.
func (m *ServiceManager) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.ServicePortUpdate:
		m.pending[u.Port.ID] = u.Port
	case model.ServicePortRemove:
		m.pending[u.ID] = nil
	case model.ServiceHealthUpdate:
		m.known = true
	case model.DenialsUpdate:
		m.denials = &u.Reported
	case model.NodeUpdate:
		if u.Node.Name == m.node { // one that is removed serves by what was known last
			m.own, m.moved = u.Node, true
		}
	}
}

// Known reports whether all ports of Services, and this node, have come once. Before, the table of an earlier process stays as it is.
func (m *ServiceManager) Known() bool { return m.known && m.own != nil }

// CompleteDeferredWork sets the chains, sets and elements.
func (m *ServiceManager) CompleteDeferredWork() {
	if !m.Known() {
		return
	}
	if !m.begun {
		m.begun = true
		m.hostStranded, m.bridgeStranded = true, true // by changes while no process ran
		m.begin()
	}
	if m.denials != nil {
		for _, c := range rules.ServiceDrops(*m.denials) {
			m.table.UpdateChain(c)
		}
		m.denials = nil
	}
	if m.moved {
		m.moved = false
		m.setPrefixes()
	}
	changed := slices.SortedFunc(maps.Keys(m.pending), compareServicePorts)
	// An address may go from one Service to another.
	for _, id := range changed {
		old := m.ports[id]
		if strands(old, m.pending[id], m.tcp) {
			m.hostStranded, m.bridgeStranded = true, true
		}
		if old != nil {
			m.render(old, m.table.Remove, -1)
			delete(m.ports, id)
		}
	}
	for _, id := range changed {
		if p := m.pending[id]; p != nil {
			m.ports[id] = p
			m.render(p, func(set, key string) { m.table.Put(set, key, "") }, 1)
		}
	}
	if len(changed) > 0 { // a map that was large once takes long to walk
		m.pending = map[model.ServicePortID]*model.ServicePort{}
	}
	for pick, uses := range m.picks {
		if uses == 0 {
			m.forget(pick)
		}
	}
}

func compareServicePorts(a, b model.ServicePortID) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}

func (m *ServiceManager) begin() {
	for _, f := range model.Families() {
		for _, s := range rules.ServiceSets(f) {
			m.table.UpdateSet(s)
			if s.Verdicts {
				m.table.Put(s.Name, string(tables.AppendNumber(nil, rules.ServiceSilent)), tables.GotoValue+rules.ChainServiceSilent)
			}
		}
	}
	for _, c := range rules.Services() {
		m.table.UpdateChain(c)
	}
	for _, p := range rules.StandingPicks() {
		m.addPick(p)
	}
}

func (m *ServiceManager) addPick(p rules.ServicePick) {
	m.table.UpdateChain(p.Chain())
	m.table.Put(p.Map(), pickKey(p), tables.GotoValue+p.Name())
}

func pickKey(p rules.ServicePick) string { return string(tables.AppendNumber(nil, p.Number())) }

// setPrefixes sets the sets of prefixes.
func (m *ServiceManager) setPrefixes() {
	wanted := map[string][]string{}
	for _, s := range []struct {
		set      rules.ServiceSet
		prefixes []netip.Prefix
	}{{rules.ServiceOwnPods, m.own.PodCIDRs}, {rules.ServiceNodePorts, m.nodePorts}} {
		for _, p := range union(s.prefixes, nil) {
			name := s.set.Of(model.FamilyOf(p.Addr()))
			wanted[name] = append(wanted[name], tables.Bounds(p)...)
		}
	}
	for name, bounds := range m.prefixes {
		for _, b := range bounds {
			m.table.Remove(name, b)
		}
	}
	for name, bounds := range wanted {
		for _, b := range bounds {
			m.table.Put(name, b, "")
		}
	}
	m.prefixes = wanted
}

// render adds what one port needs (count 1), or removes it (count -1). member does so for elements of sets.
func (m *ServiceManager) render(p *model.ServicePort, member func(set, key string), count int) {
	for i := range p.Frontends {
		m.frontend(p, &p.Frontends[i], member, count)
	}
}

// frontend does so for one frontend.
func (m *ServiceManager) frontend(p *model.ServicePort, f *model.Frontend, member func(set, key string), count int) {
	family := model.FamilyOf(f.Addr)
	key := frontendKey(f.Addr, p.ID.Protocol, f.Port)
	inside := f.Inside
	if f.Kind == model.ClusterIP {
		inside = f.Endpoints
	}
	element := func(set, key, value string) {
		if count > 0 {
			m.table.Put(set, key, value)
		} else {
			m.table.Remove(set, key)
		}
	}
	if f.Kind == model.ClusterIP {
		m.share(rules.ServiceClusterIPs, string(tables.AppendAddress(nil, f.Addr)), family, count)
	}
	if f.Sources != nil {
		member(rules.ServiceRestricted.Of(family), key)
		for _, source := range union(f.Sources, nil) {
			if model.FamilyOf(source.Addr()) == family {
				member(rules.ServiceSources.Of(family), sourceKey(key, source))
			}
		}
	}
	if len(f.Endpoints)+len(inside) == 0 && f.Empty == model.Refuse {
		member(rules.ServiceRefused.Of(family), key)
		return
	}
	pick := rules.ServicePick{Family: family, NodePort: f.Kind == model.NodePort, Affinity: affinity(p)}
	lead := func(slot uint32, pick rules.ServicePick, endpoints []model.ServiceEndpoint, first uint32) {
		if len(endpoints) == 0 {
			element(rules.ServiceEndpoints.Of(family), numbered(key, slot), numberValue(family, rules.ServiceSilent))
			return
		}
		endpoints = endpoints[:min(len(endpoints), rules.MaxServiceEndpoints)]
		pick.Count = uint32(len(endpoints))
		m.use(pick, count)
		element(rules.ServiceEndpoints.Of(family), numbered(key, slot), numberValue(family, pick.Number()))
		numbers := ids(pick, endpoints)
		for i, e := range endpoints {
			number := first + uint32(i)
			if numbers != nil {
				element(rules.ServiceEndpoints.Of(family), numbered(key, number), numberValue(family, numbers[i]))
				number = numbers[i]
			}
			element(rules.ServiceEndpoints.Of(family), numbered(key, number), endpointValue(e))
			if e.Local {
				m.share(rules.ServiceLocal, string(tables.AppendAddress(tables.AppendAddress(nil, e.Addr()), e.Addr())), family, count)
			}
		}
	}
	lead(rules.ServicePicked, pick, inside, 0)
	if !slices.Equal(inside, f.Endpoints) {
		pick.Outside = true
		lead(rules.ServicePickedOutside, pick, f.Endpoints, rules.ServiceOutsideSlot)
	}
}

// outsideID is set in the numbers of endpoints for clients outside: they must not reach the others by what is remembered
// of them.
const outsideID = 1 << 31

// ids returns numbers of endpoints that stay while other endpoints come and go, nil if the frontend remembers no clients. If two
// endpoints collide, the second gets the next number.
func ids(pick rules.ServicePick, endpoints []model.ServiceEndpoint) []uint32 {
	if pick.Affinity == 0 {
		return nil
	}
	taken := make(map[uint32]bool, len(endpoints))
	numbers := make([]uint32, len(endpoints))
	for i, e := range endpoints {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(endpointValue(e)))
		n := hash.Sum32() &^ outsideID
		for taken[n] || n < rules.FirstServiceID || n|outsideID >= rules.ServicePickedOutside {
			n = (n + 1) &^ outsideID
		}
		taken[n] = true
		if numbers[i] = n; pick.Outside {
			numbers[i] |= outsideID
		}
	}
	return numbers
}

func numbered(frontend string, n uint32) string {
	return string(tables.AppendNumber([]byte(frontend), n))
}

// affinity returns for how long a port remembers clients, in whole seconds. The API takes 1 s to a day; a manifest may have other values.
func affinity(p *model.ServicePort) time.Duration {
	if p.Affinity <= 0 {
		return 0
	}
	return min(max(p.Affinity.Truncate(time.Second), time.Second), 24*time.Hour)
}

// use counts the uses of a chain.
func (m *ServiceManager) use(p rules.ServicePick, count int) {
	if p.Affinity == 0 && p.Count <= rules.ServicePicks {
		return // it stands
	}
	if _, there := m.picks[p]; !there {
		if p.Affinity > 0 {
			m.table.UpdateSet(p.Clients())
		}
		m.addPick(p)
	}
	m.picks[p] += count
}

// forget removes a chain without uses, and the clients of its time if no other chain has it.
func (m *ServiceManager) forget(p rules.ServicePick) {
	m.table.Remove(p.Map(), pickKey(p))
	m.table.RemoveChain(p.Name())
	delete(m.picks, p)
	if p.Affinity == 0 {
		return
	}
	for other := range m.picks {
		if other.Affinity == p.Affinity && other.Clients().Name == p.Clients().Name {
			return
		}
	}
	m.table.RemoveSet(p.Clients().Name)
}

// sharedElement is an element of a set that several ports have.
type sharedElement struct {
	set rules.ServiceSet
	key string
}

// share counts the uses of such an element.
func (m *ServiceManager) share(set rules.ServiceSet, key string, f model.Family, count int) {
	e := sharedElement{set, key}
	before := m.shared[e]
	switch m.shared[e] += count; {
	case before == 0:
		m.table.Put(set.Of(f), key, "")
	case m.shared[e] == 0:
		delete(m.shared, e)
		m.table.Remove(set.Of(f), key)
	}
}

func frontendKey(a netip.Addr, p model.Protocol, port uint16) string {
	return string(tables.AppendPort(tables.AppendProtocol(tables.AppendAddress(make([]byte, 0, 24), a), p), port))
}

func endpointValue(e model.ServiceEndpoint) string {
	return string(tables.AppendPort(tables.AppendAddress(make([]byte, 0, 20), e.Addr()), e.Port()))
}

// numberValue returns a number in place of an endpoint.
func numberValue(f model.Family, n uint32) string {
	var endpoint [20]byte
	size := 8
	if f == model.IPv6 {
		size = len(endpoint)
	}
	tables.AppendNumber(endpoint[:0], n)
	return string(endpoint[:size])
}

// sourceKey returns the range of a frontend with a prefix of clients.
func sourceKey(frontend string, p netip.Prefix) string {
	r := netipx.RangeOfPrefix(p)
	return frontend + string(r.From().AsSlice()) + frontend + string(r.To().AsSlice())
}
