package felixlike

import (
	"maps"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// naming finds the objects behind the dataplane's chains and sets: it renders the names of
// everything in the model again.
type naming struct {
	renderer *rules.Renderer
	tracker  *tracker
}

// names is a naming at one moment.
type names struct {
	// named is set if the backend has chains.
	named bool
	// policies has the policy of each chain, pods the pods with packets that pass it.
	policies map[string]model.PolicyID
	pods     map[string][]model.PodID
	all      []model.PodID
	// groups has the group of each set, users the policies that use a group.
	groups map[string]model.Group
	users  map[model.GroupID][]model.PolicyID
	// addresses has the pod of each address.
	addresses map[string]model.PodID
	// policiesByName and podsByName are for backends that quarantine policies and pods
	// instead of chains.
	policiesByName map[string]model.PolicyID
	podsByName     map[string]model.PodID
}

func (n naming) index() *names {
	x := &names{
		named:    n.renderer != nil,
		policies: map[string]model.PolicyID{}, pods: map[string][]model.PodID{}, groups: map[string]model.Group{},
		users: map[model.GroupID][]model.PolicyID{}, addresses: map[string]model.PodID{},
		policiesByName: map[string]model.PolicyID{}, podsByName: map[string]model.PodID{},
	}
	for id, g := range n.tracker.groups {
		for _, f := range model.Families() {
			x.groups[ipsets.Name(id, f)] = g
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(n.tracker.policies), model.PolicyID.Compare) {
		x.policiesByName[id.String()] = id
		for _, g := range groupsOf(n.tracker.policies[id]) {
			x.users[g] = append(x.users[g], id)
		}
		if n.renderer != nil {
			for _, d := range model.Directions() {
				if chain := n.renderer.PolicyChain(id, d); x.policies[chain] == (model.PolicyID{}) {
					x.policies[chain] = id
				}
			}
		}
	}
	for _, id := range n.tracker.pods() {
		a, e := n.tracker.attachments[id], n.tracker.endpoints[id]
		if a == nil || e == nil {
			continue
		}
		x.all = append(x.all, id)
		x.podsByName[id.String()] = id
		for _, addr := range a.Addresses {
			x.addresses[addr.String()] = id
		}
		for _, chain := range n.path(e) {
			x.pods[chain] = append(x.pods[chain], id)
		}
	}
	return x
}

// path returns the chains of an endpoint's list of policies and of these policies. It leaves
// out chains that the packets of all endpoints pass.
func (n naming) path(e *model.Endpoint) []string {
	var chains []string
	if n.renderer == nil {
		return nil
	}
	for _, d := range model.Directions() {
		applied := e.Applied(d)
		own, _ := n.renderer.Applied(d, applied, func(model.PolicyID) bool { return false })
		if own.Name != "" {
			chains = append(chains, own.Name)
		}
		if len(applied.Admin) > 0 {
			chains = append(chains, n.renderer.AdminList(d, applied.Admin, func(model.PolicyID) bool { return false }).Name)
		}
		for _, id := range allPolicies(applied) {
			chains = append(chains, n.renderer.PolicyChain(id, d))
		}
	}
	return chains
}

func groupsOf(p *model.Policy) []model.GroupID {
	var all []model.GroupID
	for _, d := range model.Directions() {
		for _, r := range p.Rules(d) {
			all = append(append(all, r.Peers...), r.NamedPorts...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// owners returns the objects from which a refused one was made, and its purpose. A chain
// that the packets of every pod pass has no owners.
func (x *names) owners(r tables.Refusal) (owners []model.ObjectRef, description string) {
	if id, ok := x.policiesByName[r.Name]; ok && r.Object == policyflows.Object {
		return []model.ObjectRef{policyRef(id)}, ""
	}
	if r.Object == managers.ObjectList {
		for _, name := range r.Closed {
			if id, ok := x.podsByName[name]; ok {
				owners = append(owners, podRef(id))
			}
		}
		return owners, "shared by these pods"
	}
	if id, ok := x.policies[r.Name]; ok && r.Object == "chain" {
		return []model.ObjectRef{policyRef(id)}, ""
	}
	if g, ok := x.groups[r.Name]; ok && r.Object == "set" {
		for _, id := range x.users[g.ID] {
			owners = append(owners, policyRef(id))
		}
		return owners, g.Kind.String() + " of " + g.Description
	}
	if id, ok := x.member(r); ok {
		return []model.ObjectRef{podRef(id)}, ""
	}
	for _, id := range x.pods[r.Name] {
		owners = append(owners, podRef(id))
	}
	switch {
	case len(owners) > 0:
		return owners, "shared by the pods with one list of policies"
	case x.named && x.passedByAll(r.Name):
		return nil, "asked for every pod"
	}
	return nil, ""
}

// closedBy returns the pods that lose packets because an object was refused.
func (x *names) closedBy(r tables.Refusal) []model.PodID {
	var closed []model.PodID
	if id, ok := x.member(r); ok {
		// Without its entry, an address belongs to no endpoint.
		closed = append(closed, id)
	}
	for _, chain := range r.Closed {
		if r.Object == policyflows.Object || r.Object == managers.ObjectList {
			if id, ok := x.podsByName[chain]; ok {
				closed = append(closed, id)
			}
			continue
		}
		if x.passedByAll(chain) {
			return x.all
		}
		closed = append(closed, x.pods[chain]...)
	}
	slices.SortFunc(closed, model.PodID.Compare)
	return slices.Compact(closed)
}

// passedByAll reports whether the packets of every pod pass a chain: one of
// the static ones, or one of a dispatch tree.
func (x *names) passedByAll(chain string) bool {
	if !x.named {
		return true
	}
	switch chain {
	case rules.ChainForward, rules.ChainPrerouting, rules.ChainEgress, rules.ChainOutside, rules.ChainAllowedOut, rules.ChainCommonIn, rules.ChainCommonOut,
		rules.ChainToPods, rules.ChainSources,
		rules.ChainFromSwitch, rules.ChainFromOutside, rules.ChainRewritten:
		return true
	}
	for _, d := range model.Directions() {
		for _, f := range model.Families() {
			if strings.HasPrefix(chain, rules.DispatchMap(d, f)) {
				return true
			}
		}
	}
	return false
}

// member returns the pod of a refused entry of a verdict map: the pod's address is a word
// of the entry's name in the refusal.
func (x *names) member(r tables.Refusal) (model.PodID, bool) {
	if r.Object != "map" {
		return model.PodID{}, false
	}
	for word := range strings.FieldsSeq(r.Rule) {
		if id, ok := x.addresses[word]; ok {
			return id, true
		}
	}
	return model.PodID{}, false
}

func policyRef(id model.PolicyID) model.ObjectRef {
	kind := "NetworkPolicy"
	if id.Tier != model.TierNetworkPolicy {
		kind = "ClusterNetworkPolicy"
	}
	return ref(kind, id.Namespace, id.Name)
}

func podRef(id model.PodID) model.ObjectRef { return ref("Pod", id.Namespace, id.Name) }

// policiesAmong returns the references that are not to pods.
func policiesAmong(refs []model.ObjectRef) []model.ObjectRef {
	return slices.DeleteFunc(slices.Clone(refs), func(r model.ObjectRef) bool { return r.Kind == "Pod" })
}
