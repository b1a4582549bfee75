package policy

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// Engine computes the model of one node from the objects of the cluster. The
// Set and Delete methods note changes in any order; Flush returns what they
// come to. Objects that were handed over must not be changed afterwards.
//
// An Engine is not safe for concurrent use.
type Engine struct {
	// node is the name of the node the model is for.
	node       string
	nodes      nodes
	nodePeers  nodePeers
	namespaces map[string]*namespace
	// clusterPolicies are the names of the ClusterNetworkPolicies that are set.
	clusterPolicies map[string]struct{}
	pods            map[model.PodID]*pod
	// attached are the addresses that the CNI gave local pods.
	attached map[model.PodID][]netip.Addr
	policies map[model.PolicyID]*policy
	groups   map[model.GroupID]*group
	groupIDs compile.GroupIDs
	// collisions are the policies that are closed because of one.
	collisions map[model.PolicyID]compile.Collision
	// scopes are those of namespaceSelectors. scopeIndex finds them by the
	// labels of a namespace, labelled finds namespaces by theirs.
	scopes     map[*label.Selector]*scope
	scopeIndex label.SelectorIndex[*scope]
	labelled   label.Index[*namespace]
	// classes finds the pods of all namespaces by their labels.
	classes   label.Index[*class]
	labelSets *label.Sets
	selectors label.Selectors

	// endpoints are those of the last Flush; unapplied are the lists of those
	// that no policy applies to.
	endpoints map[model.PodID]*applied
	unapplied *applied
	// What a Flush has to look at; staleTargets are selections.
	dirtyPods     []*pod
	dirtyPolicies []*policy
	dirtyGroups   []*group
	staleTargets  []*selection

	work Work
}

// New returns an Engine without objects for the node of that name.
func New(nodeName string) *Engine {
	return &Engine{
		node:       nodeName,
		nodes:      newNodes(nodeName),
		nodePeers:  nodePeers{byName: map[string]*nodePeer{}},
		namespaces: map[string]*namespace{}, clusterPolicies: map[string]struct{}{},
		pods:     map[model.PodID]*pod{},
		attached: map[model.PodID][]netip.Addr{},
		policies: map[model.PolicyID]*policy{},
		groups:   map[model.GroupID]*group{}, groupIDs: compile.GroupIDHash, collisions: map[model.PolicyID]compile.Collision{},
		scopes:    map[*label.Selector]*scope{},
		labelSets: label.NewSets(),
		selectors: label.Selectors{},
		endpoints: map[model.PodID]*applied{},
		unapplied: &applied{},
	}
}

// Flush returns the updates since the last Flush in an order that is safe to
// apply and the same for the same changes: nodes, groups, policies, endpoints;
// then removals of endpoints, policies, groups, nodes. It returns nothing if
// the changes come to nothing. It has only what this node needs: the local
// endpoints, the policies that apply to them, the groups that these refer to,
// and all nodes.
func (e *Engine) Flush() []model.Update {
	updates := e.flush()
	if e.retryCollided() {
		updates = append(updates, e.flush()...)
	}
	return updates
}

func (e *Engine) flush() []model.Update {
	// Policies first: they acquire and release the groups.
	policies, gonePolicies := e.flushPolicies()
	groups, goneGroups := e.flushGroups()
	endpoints, goneEndpoints := e.flushEndpoints()
	nodes, goneNodes := e.nodes.flush()
	return slices.Concat(nodes, groups, policies, endpoints, goneEndpoints, gonePolicies, goneGroups, goneNodes)
}
