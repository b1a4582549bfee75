package policy

import (
	"cmp"
	"net/netip"
	"slices"

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
	namespaces map[string]*namespace
	pods       map[model.PodID]*pod
	// attached are the addresses that the CNI gave local pods.
	attached map[model.PodID][]netip.Addr
	policies map[model.PolicyID]*policy
	scopes   map[scopeKey]*scope
	// scopesByLabel finds the scopes of namespaceSelectors.
	scopesByLabel selectorIndex[*scope]
	groups        map[model.GroupID]*group

	// endpoints are those of the last Flush.
	endpoints      map[model.PodID]*model.Endpoint
	dirtyEndpoints set[model.PodID]
	dirtyPolicies  set[*policy]
	dirtyGroups    set[*group]

	// marks numbers the pod changes; scratch is reused by them.
	marks   uint64
	scratch []*selection
	work    Work
}

// New returns an Engine without objects for the node of that name.
func New(nodeName string) *Engine {
	return &Engine{
		node:           nodeName,
		nodes:          newNodes(nodeName),
		namespaces:     map[string]*namespace{},
		pods:           map[model.PodID]*pod{},
		attached:       map[model.PodID][]netip.Addr{},
		policies:       map[model.PolicyID]*policy{},
		scopes:         map[scopeKey]*scope{},
		scopesByLabel:  newSelectorIndex[*scope](),
		groups:         map[model.GroupID]*group{},
		endpoints:      map[model.PodID]*model.Endpoint{},
		dirtyEndpoints: set[model.PodID]{},
		dirtyPolicies:  set[*policy]{},
		dirtyGroups:    set[*group]{},
	}
}

// Flush returns the updates since the last Flush in an order that is safe to
// apply and the same for the same changes: nodes, groups, policies, endpoints;
// then removals of endpoints, policies, groups, nodes. It returns nothing if
// the changes come to nothing. It has only what this node needs: the local
// endpoints, the policies that apply to them, the groups that these refer to,
// and all nodes.
func (e *Engine) Flush() []model.Update {
	// Policies first: they acquire and release the groups.
	policies, gonePolicies := e.flushPolicies()
	groups, goneGroups := e.flushGroups()
	endpoints, goneEndpoints := e.flushEndpoints()
	nodes, goneNodes := e.nodes.flush()
	return slices.Concat(nodes, groups, policies, endpoints, goneEndpoints, gonePolicies, goneGroups, goneNodes)
}

func (e *Engine) flushPolicies() (updates, removals []model.Update) {
	dirty := sortedKeys(e.dirtyPolicies, func(a, b *policy) int { return a.id.Compare(b.id) })
	clear(e.dirtyPolicies)
	for _, p := range dirty {
		if p.applies() {
			if e.apply(p) {
				updates = append(updates, model.PolicyUpdate{Policy: p.emitted})
			}
			continue
		}
		if p.emitted != nil {
			e.unapply(p)
			removals = append(removals, model.PolicyRemove{ID: p.id})
		}
		if p.compiled == nil {
			delete(e.policies, p.id)
		}
	}
	return updates, removals
}

func (e *Engine) flushGroups() (updates, removals []model.Update) {
	dirty := sortedKeys(e.dirtyGroups, func(a, b *group) int { return cmp.Compare(a.spec.ID, b.spec.ID) })
	clear(e.dirtyGroups)
	for _, g := range dirty {
		if g.refs == 0 {
			e.drop(g)
			if g.emitted {
				removals = append(removals, model.GroupRemove{ID: g.spec.ID})
			}
			continue
		}
		if u, ok := g.flush(); ok {
			updates = append(updates, u)
		}
	}
	return updates, removals
}

func (e *Engine) flushEndpoints() (updates, removals []model.Update) {
	// Pods of one list of selections share the lists of policies: 10,000 pods
	// under the same 10,000 policies would take gigabytes otherwise.
	shared := map[*selection]*model.Endpoint{}
	for _, id := range sortedKeys(e.dirtyEndpoints, model.PodID.Compare) {
		before := e.endpoints[id]
		p := e.pods[id]
		if p == nil || !p.endpoint() {
			if before != nil {
				delete(e.endpoints, id)
				removals = append(removals, model.EndpointRemove{ID: id})
			}
			continue
		}
		e.work.Endpoints++
		now := p.toEndpoint(shared)
		if before == nil || !before.Ingress.Equal(now.Ingress) || !before.Egress.Equal(now.Egress) {
			e.endpoints[id] = now
			updates = append(updates, model.EndpointUpdate{Endpoint: now})
		}
	}
	clear(e.dirtyEndpoints)
	return updates, removals
}

// toEndpoint lists the policies that apply to a local pod.
func (p *pod) toEndpoint(shared map[*selection]*model.Endpoint) *model.Endpoint {
	ep := &model.Endpoint{ID: p.id}
	var only *selection
	n := 0
	for _, s := range p.selections {
		if len(s.policies) > 0 {
			only = s
			n++
		}
	}
	if n == 1 {
		if same := shared[only]; same != nil {
			ep.Ingress, ep.Egress = same.Ingress, same.Egress
			return ep
		}
		shared[only] = ep
	}
	for _, s := range p.selections {
		for applied := range s.policies {
			if applied.compiled.ingress {
				ep.Ingress.NetworkPolicies = append(ep.Ingress.NetworkPolicies, applied.id)
			}
			if applied.compiled.egress {
				ep.Egress.NetworkPolicies = append(ep.Egress.NetworkPolicies, applied.id)
			}
		}
	}
	slices.SortFunc(ep.Ingress.NetworkPolicies, model.PolicyID.Compare)
	slices.SortFunc(ep.Egress.NetworkPolicies, model.PolicyID.Compare)
	return ep
}
