package policy

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/model"
)

// isolationStore has the isolation of namespaces: for each namespace with local pods the policy that is before all others.
// The class of a namespace is among its labels, so a join moves the pods of one namespace into the group of its new class,
// and replaces the policy of that namespace; nothing else changes.
type isolationStore struct {
	on       bool
	ids      compile.GroupIDs
	classes  *tenancy.Classes
	index    *selectionIndex
	policies *policyStore
	// labels has the labels of each Namespace object, without those of its class.
	labels map[string]map[string]string
	// dirty are the namespaces whose policy may have changed.
	dirty map[string]struct{}
}

func newIsolationStore(ids compile.GroupIDs, x *selectionIndex, policies *policyStore) *isolationStore {
	return &isolationStore{
		ids: ids, classes: tenancy.New(), index: x, policies: policies,
		labels: map[string]map[string]string{}, dirty: map[string]struct{}{},
	}
}

// turn turns isolation on or off.
func (x *isolationStore) turn(on bool) {
	if x.on == on {
		return
	}
	x.on = on
	for name := range x.labels {
		x.relabel(name)
	}
	for name := range x.index.namespaces {
		x.dirty[name] = struct{}{}
	}
}

// setObject creates or replaces the NetNamespace of a name, or removes it if it is nil.
func (x *isolationStore) setObject(name string, object *antrea.NetNamespace) {
	before := x.classes.Of(name)
	x.classes.Set(name, object)
	if x.on && x.classes.Of(name) != before {
		x.dirty[name] = struct{}{}
		x.relabel(name)
	}
}

// setNamespace sets the labels of a namespace, which has its class among them.
func (x *isolationStore) setNamespace(name string, labels map[string]string) {
	x.labels[name] = labels
	x.relabel(name)
}

func (x *isolationStore) removeNamespace(name string) { delete(x.labels, name) }

func (x *isolationStore) relabel(name string) {
	// The API server gives every namespace the label of its name. An object from a file gets
	// it here.
	own, known := x.labels[name]
	if !known {
		return
	}
	labels := map[string]string{corev1.LabelMetadataName: name}
	maps.Copy(labels, own)
	if x.on {
		compile.LabelClass(labels, x.classes.Of(name))
	}
	x.index.relabel(x.index.namespace(name), x.index.labelSets.Intern(labels))
}

// onPod notes a change of a pod of the namespace.
func (x *isolationStore) onPod(namespace string) {
	if x.on {
		x.dirty[namespace] = struct{}{}
	}
}

// resolve compiles the policies of the namespaces that changes concern.
func (x *isolationStore) resolve() {
	for name := range x.dirty {
		var p *compile.Policy
		if n := x.index.namespaces[name]; x.on && n != nil && n.locals > 0 {
			p = compile.Isolation(n.name, x.classes.Of(name), x.ids)
		}
		if p == nil {
			x.policies.remove(model.IsolationOf(name))
			continue
		}
		x.index.work.Policies++
		x.policies.set(p)
	}
	clear(x.dirty)
}

// problems returns the problems of NetNamespaces. They mean nothing while namespaces are not isolated.
func (x *isolationStore) problems() []model.Problem {
	if !x.on {
		return nil
	}
	return x.classes.Problems()
}

// nodeGroups fills the groups of all nodes with what nodes own.
type nodeGroups struct {
	members *membership
	// local is this node: its last known object stays in force while it is missing.
	local string
	// counted are the nodes that the groups have.
	counted map[string]*model.Node
	all     map[*group]struct{}
}

// fill fills a new group.
func (x *nodeGroups) fill(g *group) {
	x.all[g] = struct{}{}
	for _, n := range x.counted {
		x.count(g, n, 1)
	}
}

func (x *nodeGroups) drop(g *group) { delete(x.all, g) }

// change notes that a node has come or changed, or has gone if it is nil.
func (x *nodeGroups) change(name string, now *model.Node) {
	before := x.counted[name]
	switch {
	case now != nil:
		x.counted[name] = now
	case name == x.local:
		return
	default:
		delete(x.counted, name)
	}
	for g := range x.all {
		// New members first, so that a member of both is no change.
		x.count(g, now, 1)
		x.count(g, before, -1)
	}
}

func (x *nodeGroups) count(g *group, n *model.Node, by int32) {
	if n == nil {
		return
	}
	x.members.work.Visits++
	for _, m := range g.spec.Cluster.MembersOf(n) {
		x.members.countMember(g, m, by)
	}
}
