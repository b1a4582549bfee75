package policy

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// egress is an Egress.
type egress struct {
	age
	id       antrea.ID
	compiled compile.Egress
	pods     *selection
	// problems are those of the object, and conflicts those with other objects, as of the last flush.
	problems, conflicts []model.Problem
	// members are the addresses of the pods, sorted, if stale is false.
	members []netip.Addr
	stale   bool
	// candidacy is this node's, and candidates counts the nodes that may hold the address, as of nodesSeen.
	candidacy  *model.Candidacy
	candidates int
	nodesSeen  uint64
	// project is set for an address of a project, and refused is why no node may have it, "" if one may.
	project bool
	refused string
}

// egressStore has the Egresses. An address belongs to one node: the oldest Egress decides, and another Egress
// that wants the address elsewhere drops.
type egressStore struct {
	byID  map[antrea.ID]*egress
	index *selectionIndex
	nodes *nodeStore
	peers *nodePeers
	dirty *dirtyRecords
	// nodesChanged counts the changes of nodes.
	nodesChanged uint64
	// leases are the Leases of addresses; nil without elections.
	leases  map[netip.Addr]model.EgressLease
	pools   map[antrea.ID]*pool
	emitted []model.EgressAddress
	// projects have addresses by NetNamespaces and HostSubnets.
	projects projectStore
}

// setLeases sets the Leases of addresses.
func (x *egressStore) setLeases(leases map[netip.Addr]model.EgressLease) {
	x.leases, x.dirty.egresses, x.nodes.stale = leases, true, true
}

// elects reports whether there is an Egress with an elected node.
func (x *egressStore) elects() bool {
	for _, e := range x.byID {
		if e.compiled.Nodes != nil || e.compiled.Pool != "" {
			return true
		}
	}
	return slices.ContainsFunc(x.projects.all, func(p *project) bool {
		return slices.ContainsFunc(p.addresses, func(e *egress) bool { return e.compiled.Among != nil })
	})
}

// onNode notes a change of a node.
func (x *egressStore) onNode() {
	x.nodesChanged++
	x.dirty.egresses = true
}

func (x *egressStore) set(id antrea.ID, object antrea.Object) {
	old := x.byID[id]
	var now *egress
	if object != nil {
		now = &egress{age: ageOf(object, ofEgress), id: id, stale: true}
		now.compiled, now.problems = compile.EgressOf(object)
		x.selectPods(now)
		x.byID[id] = now
	}
	if old != nil {
		x.unselect(old)
	}
	if now == nil {
		delete(x.byID, id)
	}
	if old != nil || now != nil {
		x.dirty.egresses, x.nodes.stale = true, true
	}
}

// selectPods has the selection of an Egress, and marks the Egress as stale when it changes. unselect ends that.
func (x *egressStore) selectPods(e *egress) {
	x.hold(&e.compiled.Pods)
	e.pods = x.index.selection(e.compiled.Pods)
	e.pods.egresses.Add(e)
}

func (x *egressStore) unselect(e *egress) {
	e.pods.egresses.Remove(e)
	x.index.dropIfUnused(e.pods)
	x.release(e.compiled.Pods)
}

// hold replaces the selectors of a selection by the stored ones that equal them. release gives them back.
func (x *egressStore) hold(s *compile.Selection) {
	s.Namespaces, s.Pods = x.index.selectors.Hold(s.Namespaces), x.index.selectors.Hold(s.Pods)
}

func (x *egressStore) release(s compile.Selection) {
	x.index.selectors.Release(s.Namespaces)
	x.index.selectors.Release(s.Pods)
}

// flush returns the update if anything changed.
func (x *egressStore) flush() []model.Update {
	if !x.dirty.egresses {
		return nil
	}
	x.dirty.egresses = false
	now := x.all()
	if len(now) == len(x.emitted) && reflect.DeepEqual(now, x.emitted) {
		return nil
	}
	x.emitted = now
	return []model.Update{model.EgressesUpdate{Egresses: now}}
}

// ordered returns the Egresses by name, and those of Antrea's API before our own of the same name.
func (x *egressStore) ordered() []*egress {
	return slices.SortedFunc(maps.Values(x.byID), func(a, b *egress) int {
		return cmp.Or(strings.Compare(a.id.Name, b.id.Name), a.id.Compare(b.id))
	})
}

// claims returns the claims of Egresses to addresses. Projects have none: their addresses come later than they do, so their age says nothing. An Egress whose node is the one that has the address in its status claims nothing.
func (x *egressStore) claims() []egressClaim {
	var all []egressClaim
	a := newAllocation(x)
	for _, e := range x.byID {
		if addr := a.addressOf(e); addr.IsValid() && (e.compiled.Node != "" || x.mayHold(e) != nil) {
			all = append(all, egressClaim{age: e.age, object: e.id.Ref(), address: addr, node: e.compiled.Node})
		}
	}
	return all
}

// all decides which node holds each address: the oldest Egress first, then projects. It returns the Egresses in the order of ordered, then the
// addresses of projects: a pod of both has the address of its Egress.
func (x *egressStore) all() []model.EgressAddress {
	placed := make(map[*egress]*model.EgressAddress, len(x.byID))
	p := placement{allocation: newAllocation(x), first: map[netip.Addr]*model.EgressAddress{}, held: map[string]int{}}
	order := slices.SortedFunc(maps.Values(x.byID), func(a, b *egress) int { return cmp.Or(a.compare(b.age), a.id.Compare(b.id)) })
	for _, p := range x.projects.all {
		order = append(order, p.addresses...)
	}
	for _, e := range order {
		if e.stale {
			e.members, e.stale = e.pods.addressesOfPods(), false
		}
		e.conflicts = nil
		out := model.EgressAddress{Object: e.id.Ref(), Address: e.compiled.Address}
		field, reason := p.address(e, &out)
		if reason == "" {
			field, reason = p.place(e, &out)
		} else {
			out.Address = netip.Addr{}
		}
		if reason = cmp.Or(e.refused, reason); reason != "" {
			e.conflicts = []model.Problem{{Object: out.Object, Field: field, Reason: reason}}
		}
		placed[e] = &out
	}
	var all []model.EgressAddress
	for _, e := range x.ordered() {
		out := placed[e]
		for i := range e.conflicts {
			e.conflicts[i].Reason += compile.EgressDrops
		}
		for _, a := range e.members {
			if out.Covers(model.FamilyOf(a)) {
				out.Pods = append(out.Pods, a)
			}
		}
		all = append(all, *out)
	}
	for _, p := range x.projects.all {
		p.conflicts = p.conflictsOf(placed)
		all = append(all, p.share(placed)...)
	}
	return all
}

// Fields of an Egress with conflicts.
const (
	fieldAddress  = "spec.egressIP"
	fieldSelector = "spec.nodeSelector"
)

const noCandidate = "no node matches its nodeSelector"

// placement gives addresses to nodes.
type placement struct {
	*allocation
	// first has the first Egress of each address, held the number of addresses of each node.
	first map[netip.Addr]*model.EgressAddress
	held  map[string]int
}

// place sets the node that holds the address of an Egress. It returns why no node does, with the field that is to be changed. If a node
// may be elected later, the Egress has its address until then.
func (p *placement) place(e *egress, out *model.EgressAddress) (field, reason string) {
	field, reason = p.conflict(e, out)
	if reason != "" {
		*out = model.EgressAddress{Object: out.Object, Pool: out.Pool}
		return field, reason
	}
	if a := out.Address; a.IsValid() && p.first[a] == nil {
		p.held[out.Node]++
		if out.Leased {
			field, reason = p.elect(e, out)
		}
		kept := *out
		p.first[a] = &kept
	}
	return field, reason
}

// conflict sets the node that holds the address of an Egress, and returns why it cannot.
func (p *placement) conflict(e *egress, out *model.EgressAddress) (field, reason string) {
	a := out.Address
	if !a.IsValid() {
		return "", "" // the object has problems
	}
	if owner, _ := p.nodes.owns.podsAt(a); owner != nil {
		return fieldAddress, fmt.Sprintf("%s is in the pod CIDRs of node %s", a, owner.name)
	}
	if p.nodes.owns.serviceAt(a) {
		return fieldAddress, fmt.Sprintf("%s is one of the Service addresses", a)
	}
	if first := p.first[a]; first != nil && e.project {
		return fieldAddress, fmt.Sprintf("%s is the address of %s", a, first.Object)
	}
	elected := p.mayHold(e) != nil
	owner, others := p.owner(a, e, elected)
	if first := p.first[a]; first != nil && (elected || first.Leased) {
		if !elected {
			return fieldAddress, fmt.Sprintf("%s has left the node of %s to an election", first.Object, a)
		}
		out.Node, out.Assigned, out.Leased = first.Node, first.Assigned, first.Leased
		return "", ""
	}
	if elected {
		out.Node, out.Assigned, out.Leased = p.leases[a].Holder, true, true
	} else {
		out.Node, out.Assigned = cmp.Or(e.compiled.Node, owner), e.compiled.Node != ""
	}
	switch {
	case others != "":
		return fieldAddress, fmt.Sprintf("%s is in the status of nodes %s, so it identifies none of them", a, others)
	case elected && owner != "":
		return fieldAddress, fmt.Sprintf("%s is an address of node %s, which no other node can take: name the node in %s", a, owner, e.nodeField())
	case elected && p.leases == nil:
		return fieldAddress, "there is no election here, which needs an API server: name the node in " + e.nodeField()
	case elected && p.nodes.byName[out.Node] == nil:
		out.Node = ""
	case out.Node == "":
		return fieldAddress, fmt.Sprintf("no node has %s in its status, and the object names none: an Egress of %s with node does", a, antrea.OwnGroupName)
	case p.nodes.byName[out.Node] == nil:
		return fieldAddress, fmt.Sprintf("there is no node %s", out.Node)
	case owner != "" && owner != out.Node:
		return fieldAddress, fmt.Sprintf("%s is an address of node %s, not of %s", a, owner, out.Node)
	}
	if first := p.first[a]; first != nil {
		if first.Node != out.Node {
			return fieldAddress, fmt.Sprintf("%s has given %s to node %s", first.Object, a, first.Node)
		}
		return "", ""
	}
	if out.Node != "" && p.held[out.Node] == model.MaxEgressAddresses {
		return fieldAddress, fmt.Sprintf("node %s holds %d addresses of other Egresses already, and takes no more", out.Node, model.MaxEgressAddresses)
	}
	return "", ""
}

// nodeField is the field that names a node.
func (e *egress) nodeField() string {
	if e.compiled.Among != nil {
		return "the egressIPs of its HostSubnet, without egressCIDRs"
	}
	return "spec.node"
}

// owner returns the node with an address in its status, or "". An Egress that names its node, or leaves it to an election, is not stopped
// by younger nodes, but an address of a project is. If several nodes have the address, it returns their names.
func (p *placement) owner(a netip.Addr, e *egress, elected bool) (name, several string) {
	all := p.reporters()[a]
	if !e.project && (elected || e.compiled.Node != "") {
		all = slices.DeleteFunc(slices.Clone(all), func(name string) bool {
			n := p.nodes.byName[name]
			return name != e.compiled.Node && n != nil && e.compare(n.age) < 0
		})
	}
	switch len(all) {
	case 0:
		return "", ""
	case 1:
		return all[0], ""
	}
	return "", strings.Join(all, " and ")
}

// elect sets whether this node may hold a leased address. It returns why no node holds it now.
func (p *placement) elect(e *egress, out *model.EgressAddress) (field, reason string) {
	key := out.Address.String()
	if e.compiled.Any {
		key = e.compiled.Owner
	}
	candidacy := p.candidacy(e, key)
	if out.Node == p.nodes.local || p.held[p.nodes.local] < model.MaxEgressAddresses {
		out.Candidacy = candidacy
	}
	field = fieldSelector
	if e.compiled.Pool != "" {
		field = fieldPool
	}
	switch {
	case out.Node != "":
		return "", ""
	case e.candidates == 0 && len(e.compiled.Among) > 0:
		return field, fmt.Sprintf("there is no node whose HostSubnet has %s in egressCIDRs", out.Address)
	case e.candidates == 0:
		return field, noCandidate
	}
	return field, fmt.Sprintf("no node has taken %s yet", out.Address)
}

// candidacy returns that of this node for the address of an Egress. key is the same for the same address.
func (x *egressStore) candidacy(e *egress, key string) *model.Candidacy {
	if e.nodesSeen == x.nodesChanged {
		return e.candidacy
	}
	e.nodesSeen, e.candidacy, e.candidates = x.nodesChanged, nil, 0
	may := x.mayHold(e)
	local, rank := x.peers.byName[x.nodes.local], 0
	for name, n := range x.peers.byName {
		if may(name, n) {
			e.candidates++
			if Order(key, name) < Order(key, x.nodes.local) {
				rank++
			}
		}
	}
	if local != nil && may(x.nodes.local, local) {
		e.candidacy = &model.Candidacy{Rank: rank, Of: e.candidates}
	}
	return e.candidacy
}

// Order returns the place of a node among those that may do something about a key. Each key has another order, so that the work is
// spread over the nodes.
func Order(key, node string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key + " " + node))
	return h.Sum64()
}

// addressesOfPods returns the addresses of the pods that are not on a host's network, sorted.
func (s *selection) addressesOfPods() []netip.Addr {
	var all []netip.Addr
	for c := range s.classes.All() {
		for _, pods := range [...][]*pod{c.pods[remote], c.pods[local]} {
			for _, p := range pods {
				all = append(all, p.addresses...)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// problemsOf returns the problems of all pools, Egresses, HostSubnets and addresses of NetNamespaces, in order.
func (x *egressStore) problemsOf() []model.Problem {
	all := x.poolProblems()
	for _, e := range x.ordered() {
		all = append(append(all, e.problems...), e.conflicts...)
	}
	if !x.projects.on {
		return all
	}
	all = append(all, x.projects.hosts.Problems()...)
	for _, p := range x.projects.all {
		all = append(all, p.conflicts...)
	}
	return all
}
