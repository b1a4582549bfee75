package policy

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// The records of an Engine. They refer to each other:
//
//	pod --> class <--> selection --> group, policy
//	          |            |
//	      namespace <--> scope
//
// A class has the pods of one namespace with equal labels. A scope is a set of namespaces.
// A selection has the classes that a pod selector matches in a scope, with the groups of
// these pods, the policies that apply to them and the Egresses that select them.

// place is where a pod runs.
type place uint8

const (
	// remote pods are members of groups. local pods are also endpoints.
	remote place = iota
	local
	// host pods use the network of their host, where policy does not apply.
	host
	places = iota
)

// pod is a pod of the cluster that has not finished.
type pod struct {
	id model.PodID
	podState
	// slot is the pod's index in its class.
	slot int32
	// dirty is true if the pod is in dirtyRecords.pods.
	dirty bool
	// detached is true if the CNI has detached the pod, and not attached it again. It is false for a pod that was never attached.
	detached bool
}

// podState has the properties of a pod that policy uses. Equal pods share slices.
type podState struct {
	// class is nil if the pod is deleted.
	class *class
	// reported are the addresses in the pod's status. addresses also take those of the CNI
	// into account (see podStore.addressesOf).
	reported, addresses []netip.Addr
	ports               []containerPort
	place               place
}

// containerPort is a named port of a container.
type containerPort struct {
	compile.PortName
	number uint16
}

// same reports whether both states are equal for policy.
func (s *podState) same(o *podState) bool {
	return s.class == o.class && s.place == o.place && slices.Equal(s.reported, o.reported) &&
		slices.Equal(s.addresses, o.addresses) && slices.Equal(s.ports, o.ports)
}

// endpoint reports whether the pod is an endpoint of this node.
func (s *podState) endpoint() bool { return s.class != nil && s.place == local }

// class has the pods of one namespace with equal labels. A selector matches all of them or
// none, so a pod that comes to an existing class, as most do, needs no match.
type class struct {
	namespace *namespace
	labels    *label.Set
	pods      [places][]*pod
	// firstHost is the first pod by name in the network of its host, or nil if it is not known (see selectionIndex.firstHost).
	firstHost *pod
	// selections are those that contain the class.
	selections smallmap.Set[*selection]
	// applied are the policies that apply to the pods. It is outdated if stale is true.
	applied *applied
	stale   bool
}

// put adds a pod, and take removes it. A pod knows its index.
func (c *class) put(p *pod) {
	pods := &c.pods[p.place]
	p.slot = int32(len(*pods))
	*pods = append(*pods, p)
	switch p.place {
	case host:
		c.namespace.hosts.Add(c)
		if len(*pods) == 1 || c.firstHost != nil && p.id.Compare(c.firstHost.id) < 0 {
			c.firstHost = p
		}
	case local:
		c.namespace.locals++
	}
}

func (c *class) take(p *pod) {
	pods := c.pods[p.place]
	last := len(pods) - 1
	pods[p.slot] = pods[last]
	pods[p.slot].slot = p.slot
	pods[last] = nil
	c.pods[p.place] = pods[:last]
	if p.place == local {
		c.namespace.locals--
	}
	if p == c.firstHost {
		c.firstHost = nil
	}
	if len(c.pods[host]) == 0 {
		c.namespace.hosts.Remove(c)
	}
}

// sharedPorts returns the equal slice of another pod of the class, if there is one: pods of
// one workload have equal ports.
func (c *class) sharedPorts(ports []containerPort) []containerPort {
	for _, pods := range c.pods {
		if len(pods) > 0 && slices.Equal(pods[0].ports, ports) {
			return pods[0].ports
		}
	}
	return ports
}

func (c *class) empty() bool {
	return len(c.pods[remote]) == 0 && len(c.pods[local]) == 0 && len(c.pods[host]) == 0
}

// namespace has the labels of a namespace, if the object is known, and its classes.
type namespace struct {
	name string
	// labels are those of the Namespace object, or nil without one. Without labels no
	// namespaceSelector matches, not even the empty one: an assumption about them could
	// widen a policy.
	labels  *label.Set
	classes smallmap.Map[*label.Set, *class]
	byLabel label.Index[*class]
	// hosts are the classes with pods in the network of a host.
	hosts smallmap.Set[*class]
	// locals is the number of local pods.
	locals int
	// scopes are those that contain the namespace. own is the scope of this namespace alone,
	// if a policy needs it.
	scopes smallmap.Set[*scope]
	own    *scope
}

// empty reports whether nothing needs the namespace.
func (n *namespace) empty() bool { return n.labels == nil && n.classes.Len() == 0 && n.own == nil }

// scope is a set of namespaces, with the selections of pods in them: one namespace by its
// name, or the namespaces that a namespaceSelector matches.
type scope struct {
	// namespaces is nil for a scope of one namespace by its name.
	namespaces *label.Selector
	members    smallmap.Set[*namespace]
	selections smallmap.Map[*label.Selector, *selection]
	index      label.SelectorIndex[*selection]
}

// selection has the classes that a pod selector matches in a scope.
type selection struct {
	scope   *scope
	pods    *label.Selector
	classes smallmap.Set[*class]
	// locals is the number of local pods of the classes, hosts that of the classes with pods in the network of a host.
	locals, hosts int
	// addresses and ports are the groups of these pods.
	addresses *group
	ports     smallmap.Map[compile.PortName, *group]
	// policies are those that apply to the pods. applied lists them for pods to which no
	// other selection applies policies. If stale is true, these lists are outdated for all
	// classes.
	policies smallmap.Set[*policy]
	applied  *applied
	stale    bool
	// egresses are those that select the pods.
	egresses smallmap.Set[*egress]
}

func (s *selection) used() bool {
	return s.addresses != nil || s.ports.Len() > 0 || s.policies.Len() > 0 || s.egresses.Len() > 0
}

// group is a group in the rules of a policy that applies to local pods.
type group struct {
	model.Group
	// spec is the definition.
	spec compile.Group
	// from is the selection of the pods, or nil for nodes and Networks. port is the port of
	// AddressPorts. nodes selects nodes.
	from  *selection
	port  compile.PortName
	nodes *label.Selector
	// counts has how many pods or nodes have each member: two pods may have one address for
	// a while.
	counts smallmap.Map[model.Member, int32]
	refs   int
	// emitted is true if a Flush returned the group. was has the members that changed since
	// the last Flush, with whether it knew them.
	emitted bool
	was     smallmap.Map[model.Member, bool]
	// dirty is true if the group is in dirtyRecords.groups.
	dirty bool
}

// policy is a NetworkPolicy, a ClusterNetworkPolicy, or a part of one of Antrea's API.
type policy struct {
	id model.PolicyID
	// compiled is the present object, or nil if it is deleted.
	compiled *compile.Policy
	// targets are the selections of the pods that the policy applies to, each once.
	targets []*selection
	// emitted is the policy of the last Flush, made of source; its groups are acquired.
	// source differs from compiled if the policy is closed because of a collision of groups.
	emitted *model.Policy
	source  *compile.Policy
	// staged is the compiled policy whose groups are acquired although it is not enforced.
	staged *compile.Policy
	// ofHost is true if emitted is one for nodes.
	ofHost bool
	// dirty is true if the policy is in dirtyRecords.policies.
	dirty bool
}

// enforced reports whether the policy applies to a local pod.
func (p *policy) enforced() bool { return p.applies() && !p.compiled.Staged }

// applies reports whether the policy applies to a local pod, or would if it were enforced.
func (p *policy) applies() bool {
	return p.compiled != nil && (p.compiled.Ingress || p.compiled.Egress) &&
		slices.ContainsFunc(p.targets, func(s *selection) bool { return s.locals > 0 })
}

// applied lists the policies that apply to a pod in each direction. It is immutable, and
// pods share it: otherwise 10,000 pods under 10,000 policies would have lists of 8 GB.
type applied struct{ ingress, egress model.Applied }

func (a *applied) equal(o *applied) bool {
	return a == o || a.ingress.Equal(o.ingress) && a.egress.Equal(o.egress)
}

// endpoint returns the endpoint of a pod with these policies.
func (a *applied) endpoint(id model.PodID) *model.Endpoint {
	return &model.Endpoint{ID: id, Ingress: a.ingress, Egress: a.egress}
}
