package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/model"
)

// Engine computes the model of one node from the objects of the cluster. The Set and
// Delete methods take changes in any order; Flush returns the updates. A caller must not
// change an object after Set.
//
// An Engine is not safe for concurrent use.
type Engine struct {
	work *Work
	// clusterPolicies are the names of the ClusterNetworkPolicies.
	clusterPolicies map[string]struct{}
	groupIDs        compile.GroupIDs

	// Each part uses the parts above it only.
	dirty          *dirtyRecords
	index          *selectionIndex
	nodes          nodeStore
	nodePeers      *nodePeers
	pods           *podStore
	groups         *groupStore
	policies       *policyStore
	endpoints      *endpointStore
	antrea         *antreaStore
	isolation      *isolationStore
	egressPolicies *egressPolicyStore
	egresses       *egressStore
	hosts          *hostStore
	staged         *stagedStore
}

// New returns an Engine without objects for the node of that name.
func New(nodeName string) *Engine {
	work := &Work{}
	dirty := &dirtyRecords{work: work}
	members := &membership{work: work, dirty: dirty}
	m := &matcher{work: work, labelSets: label.NewSets(), selectors: label.Selectors{}}
	x := newSelectionIndex(m, members)
	peers := newNodePeers(m, members)
	pods := &podStore{
		node: nodeName, byID: map[model.PodID]*pod{}, attached: map[model.PodID][]netip.Addr{}, holders: map[netip.Addr]int{},
		index: x, members: members, dirty: dirty,
	}
	groups := &groupStore{byID: map[model.GroupID]*group{}, index: x, nodes: peers, members: members, dirty: dirty}
	cluster := &nodeGroups{members: members, local: nodeName, counted: map[string]*model.Node{}, all: map[*group]struct{}{}}
	groups.cluster = cluster
	hosts := &hostStore{matcher: m}
	policies := &policyStore{
		hosts: hosts,
		byID:  map[model.PolicyID]*policy{}, collisions: map[model.PolicyID]compile.Collision{},
		index: x, groups: groups, dirty: dirty,
	}
	endpoints := &endpointStore{work: work, dirty: dirty, pods: pods, emitted: map[model.PodID]*applied{}, unapplied: &applied{}}
	policies.staged = &stagedStore{byID: map[model.PolicyID]*policy{}, groups: groups, endpoints: endpoints}
	e := &Engine{
		work: work, clusterPolicies: map[string]struct{}{}, groupIDs: compile.GroupIDHash,
		dirty: dirty, index: x, nodes: newNodeStore(nodeName), nodePeers: peers, pods: pods, groups: groups,
		policies:  policies,
		hosts:     hosts,
		antrea:    newAntreaStore(work, compile.GroupIDHash, x, policies),
		endpoints: endpoints,
		staged:    policies.staged,
	}
	e.isolation = newIsolationStore(compile.GroupIDHash, x, policies)
	e.egressPolicies = &egressPolicyStore{
		isolation: e.isolation, policies: policies, nodes: &e.nodes, peers: peers, objects: map[string]map[string]*antrea.EgressNetworkPolicy{},
		compiled: map[tenancy.Class]classPolicy{}, dirty: map[tenancy.Class]struct{}{}, dns: map[model.PodID]dnsServer{},
	}
	e.nodes.changed = cluster.change
	e.egresses = &egressStore{byID: map[antrea.ID]*egress{}, pools: map[antrea.ID]*pool{}, index: x, nodes: &e.nodes, peers: peers, dirty: dirty, nodesChanged: 1}
	e.egresses.projects = projectStore{classes: e.isolation.classes, hosts: tenancy.HostSubnets{}}
	return e
}

// Narrowed returns a new engine for the same node with that number of hash characters in
// the identifiers of groups. Tests use it to make groups collide.
func (e *Engine) Narrowed(hash int) *Engine {
	narrow := New(e.pods.node)
	narrow.groupIDs = compile.GroupIDs(hash)
	narrow.antrea.ids, narrow.isolation.ids = narrow.groupIDs, narrow.groupIDs
	return narrow
}

// SetNode creates or replaces a node, and reports its invalid parts. NodeProblems has its conflicts with other objects.
func (e *Engine) SetNode(object *corev1.Node) []model.Problem {
	if object == nil {
		return nil
	}
	r := compile.Report{Object: model.ObjectRef{Kind: "Node", Name: object.Name}}
	e.nodePeers.set(object.Name, object)
	e.egresses.onNode()
	addresses, cidrs := parseInternalIPs(object, &r), parsePodCIDRs(object, &r)
	if object.Name == e.pods.node {
		e.pods.setRanges(cidrs)
		e.hosts.setLabels(object.Labels, e.dirty)
	}
	e.nodes.set(ageOf(object, ofNode), addresses, cidrs, parsePublicKey(object, &r))
	return r.Problems
}

// SetServiceCIDRs sets the prefixes of Service addresses. No node owns one of them.
func (e *Engine) SetServiceCIDRs(prefixes []netip.Prefix) {
	if e.nodes.setServices(prefixes) {
		e.egresses.onNode()
	}
}

// DeleteNode removes a node. This node keeps what it owns until it has an object again.
func (e *Engine) DeleteNode(name string) {
	e.nodePeers.set(name, nil)
	e.egresses.onNode()
	e.nodes.remove(name)
}

// SetNamespace creates or replaces a namespace.
func (e *Engine) SetNamespace(object *corev1.Namespace) {
	if object == nil {
		return
	}
	e.isolation.setNamespace(object.Name, object.Labels)
}

// SetIsolation turns the isolation of namespaces (setting isolation) on or off. It is off at first.
func (e *Engine) SetIsolation(on bool) {
	e.isolation.turn(on)
	e.egresses.projects.on, e.egresses.projects.stale = on, true
	e.egressPolicies.noteAll()
}

// DeleteNamespace removes a namespace. Its pods and policies are deleted on their own.
func (e *Engine) DeleteNamespace(name string) {
	e.isolation.removeNamespace(name)
	if n, ok := e.index.namespaces[name]; ok {
		e.index.relabel(n, nil)
		e.index.dropNamespaceIfEmpty(n)
	}
}

// SetPod creates or replaces a pod, and reports its invalid parts.
func (e *Engine) SetPod(object *corev1.Pod) []model.Problem {
	if object == nil {
		return nil
	}
	e.isolation.onPod(object.Namespace)
	e.egressPolicies.onPod(model.PodID{Namespace: object.Namespace, Name: object.Name}, object)
	return e.pods.set(object)
}

// DeletePod removes a pod.
func (e *Engine) DeletePod(id model.PodID) {
	e.isolation.onPod(id.Namespace)
	e.egressPolicies.onPod(id, nil)
	e.pods.remove(id)
}

// SetLocalAddresses sets the addresses that the CNI gave to a pod of this node, or removes
// them if the list is empty. Of each family in the list, they replace the addresses in the
// pod's status: the status comes late, or belongs to an earlier pod with the same name. No other
// pod has one of them, whatever its status says. After the removal the pod has no address: its status keeps the old one
// until the kubelet writes it, and the next pod may have that. The call may come before SetPod.
func (e *Engine) SetLocalAddresses(id model.PodID, addresses []netip.Addr) {
	e.pods.attach(id, addresses)
}

// SetNetworkPolicy creates or replaces a NetworkPolicy, and reports its invalid parts. Such
// a part allows nothing, and the pods stay isolated.
func (e *Engine) SetNetworkPolicy(object *networkingv1.NetworkPolicy) []model.Problem {
	if object == nil {
		return nil
	}
	e.work.Policies++
	c, problems := compile.NetworkPolicy(object, e.groupIDs)
	e.policies.set(c)
	return problems
}

// SetClosedNetworkPolicy replaces a NetworkPolicy that could not be decoded. It isolates,
// in both directions and without rules, the pods that the selector matches, or all pods of
// the namespace if the selector is nil or invalid.
func (e *Engine) SetClosedNetworkPolicy(namespace, name string, podSelector *metav1.LabelSelector) {
	e.policies.set(compile.ClosedNetworkPolicy(namespace, name, podSelector))
}

// DeleteNetworkPolicy removes a NetworkPolicy.
func (e *Engine) DeleteNetworkPolicy(namespace, name string) {
	e.policies.remove(networkPolicyID(namespace, name))
}

func networkPolicyID(namespace, name string) model.PolicyID {
	return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: namespace, Name: name}
}

// SetClusterNetworkPolicy creates or replaces a ClusterNetworkPolicy, and reports its
// invalid parts. Such a rule fails closed: an Accept matches nothing, and a Deny or a Pass
// denies everything.
func (e *Engine) SetClusterNetworkPolicy(object *v1alpha2.ClusterNetworkPolicy) []model.Problem {
	if object == nil {
		return nil
	}
	e.work.Policies++
	e.clusterPolicies[object.Name] = struct{}{}
	c, problems := compile.ClusterNetworkPolicy(object, e.groupIDs)
	for _, tier := range clusterTiers() {
		if tier != c.Model.ID.Tier {
			e.policies.remove(model.PolicyID{Tier: tier, Name: object.Name})
		}
	}
	e.policies.set(c)
	return problems
}

// DeleteClusterNetworkPolicy removes a ClusterNetworkPolicy.
func (e *Engine) DeleteClusterNetworkPolicy(name string) {
	delete(e.clusterPolicies, name)
	for _, tier := range clusterTiers() {
		e.policies.remove(model.PolicyID{Tier: tier, Name: name})
	}
}

// clusterTiers lists the tiers of ClusterNetworkPolicies. A name is in one of them.
func clusterTiers() []model.Tier { return []model.Tier{model.TierAdmin, model.TierBaseline} }

// SetAntrea creates or replaces an object of Antrea's API, or a pool or an Egress of our own. AntreaProblems has its invalid
// parts, which fail closed as those of a ClusterNetworkPolicy.
func (e *Engine) SetAntrea(object antrea.Object) { e.setAntrea(object.ID(), object) }

// DeleteAntrea removes an object of Antrea's API.
func (e *Engine) DeleteAntrea(id antrea.ID) { e.setAntrea(id, nil) }

func (e *Engine) setAntrea(id antrea.ID, object antrea.Object) {
	switch id.Kind {
	case antrea.KindEgress, antrea.KindNodeEgress:
		e.egresses.set(id, object)
	case antrea.KindExternalIPPool, antrea.KindOwnExternalIPPool:
		e.egresses.setPool(id, object)
	case antrea.KindNetNamespace:
		netNamespace, _ := object.(*antrea.NetNamespace)
		addressed := e.isolation.classes.Addressed(id.Name)
		e.egressPolicies.note(e.isolation.classes.Of(id.Name))
		e.isolation.setObject(id.Name, netNamespace)
		e.egressPolicies.note(e.isolation.classes.Of(id.Name))
		e.egresses.projects.stale = addressed || e.isolation.classes.Addressed(id.Name) || e.egresses.projects.stale
	case antrea.KindHostSubnet:
		host, _ := object.(*antrea.HostSubnet)
		e.egresses.setHost(id.Name, host)
	case antrea.KindEgressNetworkPolicy:
		egressPolicy, _ := object.(*antrea.EgressNetworkPolicy)
		e.egressPolicies.set(id, egressPolicy)
	default:
		e.antrea.set(id, object)
	}
}

// Flush returns the updates since the last Flush, or nothing if nothing changed. The order
// is safe to apply, and the same for the same changes: nodes, Egresses, groups, policies, those of this node itself, endpoints, staged policies;
// then removals of endpoints, policies, groups, nodes. The updates have only the objects that
// this node needs: the local endpoints, the policies that apply to them, the groups in these
// policies, and all nodes and Egresses.
func (e *Engine) Flush() []model.Update {
	updates := flush(e)
	if e.policies.retryCollided() {
		updates = append(updates, flush(e)...)
	}
	return updates
}

func flush(e *Engine) []model.Update {
	e.antrea.resolve()
	e.isolation.resolve()
	e.egresses.resolveProjects()
	e.egressPolicies.resolve()
	// Nodes first: groups have what they own.
	e.nodes.decide(e.egresses.claims)
	nodes, goneNodes := e.nodes.flush()
	// Policies before groups: they acquire and release the groups.
	policies, gonePolicies := e.policies.flush()
	groups, goneGroups := e.groups.flush()
	endpoints, goneEndpoints := e.endpoints.flush()
	return slices.Concat(nodes, e.egresses.flush(), groups, policies, e.hosts.flush(e.groups.byID), endpoints, e.staged.flush(), goneEndpoints, gonePolicies, goneGroups, goneNodes)
}
