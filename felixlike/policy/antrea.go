package policy

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// antreaStore has the objects of Antrea's API. Its policies depend on other objects: on tiers and
// groups, and those with peers in the subject's own namespace on the namespaces of local pods. So
// it compiles the policies that changes concern when Flush begins.
type antreaStore struct {
	work     *Work
	ids      compile.GroupIDs
	index    *selectionIndex
	policies *policyStore

	objects  map[antrea.ID]antrea.Object
	problems map[antrea.ID][]model.Problem
	// uses are the tiers and groups of a policy, and users the reverse.
	uses  map[antrea.ID][]antrea.ID
	users map[antrea.ID]map[antrea.ID]struct{}
	// before has the pods of the groups of policies when they could be understood.
	before compile.AntreaGroupPods
	// compiled are the policies of the model that an object has, by the namespace that they are
	// within.
	compiled map[antrea.ID]map[string][]model.PolicyID
	// self are the policies with one for each namespace. local are the namespaces of local pods,
	// as these policies know them.
	self  map[antrea.ID]struct{}
	local map[string]*label.Set
	dirty map[antrea.ID]struct{}
	// clusterPolicies counts the ClusterNetworkPolicies.
	clusterPolicies int
}

func newAntreaStore(work *Work, ids compile.GroupIDs, x *selectionIndex, policies *policyStore) *antreaStore {
	return &antreaStore{
		work: work, ids: ids, index: x, policies: policies,
		objects: map[antrea.ID]antrea.Object{}, problems: map[antrea.ID][]model.Problem{},
		uses: map[antrea.ID][]antrea.ID{}, users: map[antrea.ID]map[antrea.ID]struct{}{}, before: compile.AntreaGroupPods{},
		compiled: map[antrea.ID]map[string][]model.PolicyID{},
		self:     map[antrea.ID]struct{}{}, local: map[string]*label.Set{}, dirty: map[antrea.ID]struct{}{},
	}
}

// set sets an object, or removes it if it is nil.
func (x *antreaStore) set(id antrea.ID, object antrea.Object) {
	_, known := x.objects[id]
	if object == nil {
		delete(x.objects, id)
		delete(x.before, id)
	} else {
		x.objects[id] = object
	}
	if id.Kind == antrea.KindClusterNetworkPolicy && known != (object != nil) {
		if known {
			x.clusterPolicies--
		} else {
			x.clusterPolicies++
		}
	}
	if id.Kind == antrea.KindClusterNetworkPolicy || id.Kind == antrea.KindNetworkPolicy {
		if known || object != nil {
			x.dirty[id] = struct{}{}
		}
		return
	}
	delete(x.problems, id)
	if t, is := object.(*antrea.Tier); is {
		if found := compile.AntreaTierProblems(t); len(found) > 0 {
			x.problems[id] = found
		}
	}
	maps.Copy(x.dirty, x.users[id])
}

// resolve compiles the policies that changes concern.
func (x *antreaStore) resolve() {
	for _, id := range slices.SortedFunc(maps.Keys(x.dirty), antrea.ID.Compare) {
		x.prepare(id)
	}
	changed := x.localNamespaces()
	for _, id := range slices.SortedFunc(maps.Keys(x.self), antrea.ID.Compare) {
		within := changed
		if _, all := x.dirty[id]; all {
			within = maps.Clone(changed)
			maps.Copy(within, x.local)
		}
		for name, labels := range within {
			x.compile(id, compile.AntreaNamespace{Name: name, Labels: labels})
		}
	}
	clear(x.dirty)
}

// prepare notes the problems and uses of a dirty policy. It compiles the policy, unless it has one
// for each namespace.
func (x *antreaStore) prepare(id antrea.ID) {
	object, old := x.objects[id], x.uses[id]
	for _, used := range old {
		delete(x.users[used], id)
		if len(x.users[used]) == 0 {
			delete(x.users, used)
		}
	}
	delete(x.uses, id)
	delete(x.problems, id)
	_, was := x.self[id]
	delete(x.self, id)
	if object == nil || compile.AntreaMatchesSelf(object) != was {
		for name := range x.compiled[id] {
			x.replace(id, name, nil)
		}
	}
	if object == nil {
		x.forget(old, nil)
		return
	}
	policies, problems, uses := compile.AntreaPolicy(object, x.object, x.before, compile.AntreaNamespace{}, x.ids)
	x.work.Policies++
	if len(problems) > 0 {
		x.problems[id] = problems
	}
	if len(uses) > 0 {
		x.uses[id] = uses
	}
	x.forget(old, uses)
	for _, used := range uses {
		if x.users[used] == nil {
			x.users[used] = map[antrea.ID]struct{}{}
		}
		x.users[used][id] = struct{}{}
	}
	if compile.AntreaMatchesSelf(object) {
		x.self[id] = struct{}{}
		return
	}
	x.replace(id, "", policies)
}

// forget forgets the pods of groups that no policy uses any more.
func (x *antreaStore) forget(old, uses []antrea.ID) {
	for _, used := range old {
		if len(x.users[used]) == 0 && !slices.Contains(uses, used) {
			delete(x.before, used)
		}
	}
}

// localNamespaces updates the namespaces of local pods if a policy has one for each. It returns
// those that changed, without labels if they are gone.
func (x *antreaStore) localNamespaces() map[string]*label.Set {
	changed := map[string]*label.Set{}
	if len(x.self) == 0 {
		clear(x.local)
		return changed
	}
	for name, n := range x.index.namespaces {
		labels := n.labels
		if n.locals == 0 {
			labels = nil
		}
		if labels != x.local[name] {
			changed[name] = labels
		}
	}
	for name := range x.local {
		if x.index.namespaces[name] == nil {
			changed[name] = nil
		}
	}
	for name, labels := range changed {
		if labels == nil {
			delete(x.local, name)
		} else {
			x.local[name] = labels
		}
	}
	return changed
}

// compile compiles a policy for a namespace, which is gone if it has no labels.
func (x *antreaStore) compile(id antrea.ID, within compile.AntreaNamespace) {
	var policies []*compile.Policy
	if within.Labels != nil {
		x.work.Policies++
		policies, _, _ = compile.AntreaPolicy(x.objects[id], x.object, x.before, within, x.ids)
	}
	x.replace(id, within.Name, policies)
}

// replace replaces the policies of the model that an object has within a namespace.
func (x *antreaStore) replace(id antrea.ID, within string, policies []*compile.Policy) {
	var now []model.PolicyID
	for _, p := range policies {
		now = append(now, p.Model.ID)
		x.policies.set(p)
	}
	for _, old := range x.compiled[id][within] {
		if !slices.Contains(now, old) {
			x.policies.remove(old)
		}
	}
	switch {
	case len(now) > 0 && x.compiled[id] == nil:
		x.compiled[id] = map[string][]model.PolicyID{within: now}
	case len(now) > 0:
		x.compiled[id][within] = now
	default:
		delete(x.compiled[id], within)
		if len(x.compiled[id]) == 0 {
			delete(x.compiled, id)
		}
	}
}

func (x *antreaStore) object(id antrea.ID) antrea.Object { return x.objects[id] }
