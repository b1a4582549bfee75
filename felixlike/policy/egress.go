package policy

import (
	"cmp"
	"fmt"
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
	id       antrea.ID
	compiled compile.Egress
	pods     *selection
	// problems are those of the object, and conflicts those with other objects, as of the last flush.
	problems, conflicts []model.Problem
	// members are the addresses of the pods, sorted, if stale is false.
	members []netip.Addr
	stale   bool
}

// egressStore has the Egresses. An address belongs to one node: the first Egress by name decides, and another Egress
// that wants the address elsewhere drops.
type egressStore struct {
	byID    map[antrea.ID]*egress
	index   *selectionIndex
	nodes   *nodeStore
	peers   *nodePeers
	dirty   *dirtyRecords
	emitted []model.EgressAddress
}

func (x *egressStore) set(id antrea.ID, object antrea.Object) {
	old := x.byID[id]
	var now *egress
	if object != nil {
		now = &egress{id: id, stale: true}
		now.compiled, now.problems = compile.EgressOf(object)
		x.hold(&now.compiled.Pods)
		now.pods = x.index.selection(now.compiled.Pods)
		now.pods.egresses.Add(now)
		x.byID[id] = now
	}
	if old != nil {
		old.pods.egresses.Remove(old)
		x.index.dropIfUnused(old.pods)
		x.release(old.compiled.Pods)
	}
	if now == nil {
		delete(x.byID, id)
	}
	x.dirty.egresses = x.dirty.egresses || old != nil || now != nil
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

// all decides which node holds each address.
func (x *egressStore) all() []model.EgressAddress {
	var all []model.EgressAddress
	holders, held := map[netip.Addr]*model.EgressAddress{}, map[string]int{}
	for _, e := range x.ordered() {
		if e.stale {
			e.members, e.stale = e.pods.addressesOfPods(), false
		}
		e.conflicts = nil
		out := model.EgressAddress{Object: e.id.Ref(), Address: e.compiled.Address}
		if reason := x.place(e, &out, holders, held); reason != "" {
			e.conflicts = []model.Problem{{Object: out.Object, Field: "spec.egressIP", Reason: reason + compile.EgressDrops}}
			out = model.EgressAddress{Object: out.Object}
		}
		for _, a := range e.members {
			if out.Covers(model.FamilyOf(a)) {
				out.Pods = append(out.Pods, a)
			}
		}
		all = append(all, out)
	}
	return all
}

// place returns the node that holds the address of an Egress, or why no node does.
func (x *egressStore) place(e *egress, out *model.EgressAddress, holders map[netip.Addr]*model.EgressAddress, held map[string]int) string {
	a := out.Address
	if !a.IsValid() {
		return "" // the object has problems
	}
	for _, name := range slices.Sorted(maps.Keys(x.nodes.byName)) {
		if n := x.nodes.byName[name]; slices.ContainsFunc(n.wanted, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return fmt.Sprintf("%s is in the pod CIDRs of node %s", a, name)
		}
	}
	owner := ""
	for _, name := range slices.Sorted(maps.Keys(x.peers.byName)) {
		if slices.Contains(x.peers.byName[name].addresses, a) {
			owner = name
			break
		}
	}
	out.Node, out.Assigned = cmp.Or(e.compiled.Node, owner), e.compiled.Node != ""
	switch {
	case out.Node == "":
		return fmt.Sprintf("no node has %s in its status, and the object names none: an Egress of %s with node does", a, antrea.OwnGroupName)
	case x.nodes.byName[out.Node] == nil:
		return fmt.Sprintf("there is no node %s", out.Node)
	case owner != "" && owner != out.Node:
		return fmt.Sprintf("%s is an address of node %s, not of %s", a, owner, out.Node)
	}
	if first := holders[a]; first != nil {
		if first.Node != out.Node {
			return fmt.Sprintf("%s has given %s to node %s", first.Object, a, first.Node)
		}
		return ""
	}
	if held[out.Node] == model.MaxEgressAddresses {
		return fmt.Sprintf("node %s holds %d addresses of other Egresses already, and takes no more", out.Node, model.MaxEgressAddresses)
	}
	held[out.Node]++
	kept := *out
	holders[a] = &kept
	return ""
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

// problemsOf returns the problems of all Egresses, in order.
func (x *egressStore) problemsOf() []model.Problem {
	var all []model.Problem
	for _, e := range x.ordered() {
		all = append(append(all, e.problems...), e.conflicts...)
	}
	return all
}
