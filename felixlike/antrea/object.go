package antrea

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/felixlike/felixlike/model"
)

// Kind is a kind of the API. The order is that of events: policies refer to the kinds before
// them.
type Kind uint8

// The kinds.
const (
	KindTier Kind = iota + 1
	KindClusterGroup
	KindGroup
	KindClusterNetworkPolicy
	KindNetworkPolicy
	KindExternalIPPool
	// KindOwnExternalIPPool is the ExternalIPPool of felixlike's own API.
	KindOwnExternalIPPool
	KindEgress
	// KindNodeEgress is the Egress of felixlike's own API.
	KindNodeEgress
	// KindNetNamespace is the NetNamespace of OpenShift SDN.
	KindNetNamespace
	// KindHostSubnet is the HostSubnet of OpenShift SDN.
	KindHostSubnet
	// KindEgressNetworkPolicy is the EgressNetworkPolicy of OpenShift SDN.
	KindEgressNetworkPolicy
)

// Kinds lists all kinds in their order.
func Kinds() []Kind {
	return []Kind{
		KindTier, KindClusterGroup, KindGroup, KindClusterNetworkPolicy, KindNetworkPolicy,
		KindExternalIPPool, KindOwnExternalIPPool, KindEgress, KindNodeEgress, KindNetNamespace, KindHostSubnet, KindEgressNetworkPolicy,
	}
}

// IsPolicy reports whether it is a kind of policy with tiers.
func (k Kind) IsPolicy() bool { return k == KindClusterNetworkPolicy || k == KindNetworkPolicy }

// String returns the kind as the API names it.
func (k Kind) String() string {
	switch k {
	case KindTier:
		return "Tier"
	case KindClusterGroup:
		return "ClusterGroup"
	case KindGroup:
		return "Group"
	case KindClusterNetworkPolicy:
		return "ClusterNetworkPolicy"
	case KindNetworkPolicy:
		return "NetworkPolicy"
	case KindExternalIPPool, KindOwnExternalIPPool:
		return "ExternalIPPool"
	case KindEgress, KindNodeEgress:
		return "Egress"
	case KindNetNamespace:
		return "NetNamespace"
	case KindHostSubnet:
		return "HostSubnet"
	case KindEgressNetworkPolicy:
		return "EgressNetworkPolicy"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Namespaced reports whether objects of the kind are in namespaces.
func (k Kind) Namespaced() bool {
	return k == KindGroup || k == KindNetworkPolicy || k == KindEgressNetworkPolicy
}

// GroupVersion returns the group and version of the API that has the kind.
func (k Kind) GroupVersion() schema.GroupVersion {
	switch k {
	case KindNodeEgress, KindOwnExternalIPPool:
		return schema.GroupVersion{Group: OwnGroupName, Version: OwnVersion}
	case KindNetNamespace, KindHostSubnet, KindEgressNetworkPolicy:
		return schema.GroupVersion{Group: NetNamespaceGroupName, Version: NetNamespaceVersion}
	}
	return GroupVersion()
}

// Resource returns the API's name of the kind in URLs.
func (k Kind) Resource() string {
	switch k {
	case KindTier:
		return "tiers"
	case KindClusterGroup:
		return "clustergroups"
	case KindGroup:
		return "groups"
	case KindClusterNetworkPolicy:
		return "clusternetworkpolicies"
	case KindExternalIPPool, KindOwnExternalIPPool:
		return "externalippools"
	case KindEgress, KindNodeEgress:
		return "egresses"
	case KindNetNamespace:
		return "netnamespaces"
	case KindHostSubnet:
		return "hostsubnets"
	case KindEgressNetworkPolicy:
		return "egressnetworkpolicies"
	}
	return "networkpolicies"
}

// New returns an empty object of the kind.
func (k Kind) New() Object {
	switch k {
	case KindTier:
		return &Tier{}
	case KindClusterGroup:
		return &ClusterGroup{}
	case KindGroup:
		return &Group{}
	case KindClusterNetworkPolicy:
		return &ClusterNetworkPolicy{}
	case KindExternalIPPool:
		return &ExternalIPPool{}
	case KindOwnExternalIPPool:
		return &OwnExternalIPPool{}
	case KindEgress:
		return &Egress{}
	case KindNodeEgress:
		return &NodeEgress{}
	case KindNetNamespace:
		return &NetNamespace{}
	case KindHostSubnet:
		return &HostSubnet{}
	case KindEgressNetworkPolicy:
		return &EgressNetworkPolicy{}
	}
	return &NetworkPolicy{}
}

// ID names an object.
type ID struct {
	Kind            Kind
	Namespace, Name string
}

// Compare orders by kind, namespace, name.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Kind, o.Kind), cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}

// Ref names the object for people. The kind has its API group, because other groups have kinds of
// the same names.
func (id ID) Ref() model.ObjectRef {
	return model.ObjectRef{Kind: id.Kind.String() + "." + id.Kind.GroupVersion().Group, Namespace: id.Namespace, Name: id.Name}
}

// Object is an object of one of the kinds.
type Object interface {
	metav1.Object
	ID() ID
}

// ID names the tier.
func (o *Tier) ID() ID { return ID{KindTier, "", o.Name} }

// ID names the group.
func (o *ClusterGroup) ID() ID { return ID{KindClusterGroup, "", o.Name} }

// ID names the group.
func (o *Group) ID() ID { return ID{KindGroup, o.Namespace, o.Name} }

// ID names the policy.
func (o *ClusterNetworkPolicy) ID() ID { return ID{KindClusterNetworkPolicy, "", o.Name} }

// ID names the policy.
func (o *NetworkPolicy) ID() ID { return ID{KindNetworkPolicy, o.Namespace, o.Name} }

// ID names the pool.
func (o *ExternalIPPool) ID() ID { return ID{KindExternalIPPool, "", o.Name} }

// ID names the pool.
func (o *OwnExternalIPPool) ID() ID { return ID{KindOwnExternalIPPool, "", o.Name} }

// ID names the Egress.
func (o *Egress) ID() ID { return ID{KindEgress, "", o.Name} }

// ID names the Egress.
func (o *NodeEgress) ID() ID { return ID{KindNodeEgress, "", o.Name} }

// Objects are objects of all kinds.
type Objects struct {
	Tiers           []*Tier                 `json:"tiers,omitempty"`
	ClusterGroups   []*ClusterGroup         `json:"clusterGroups,omitempty"`
	Groups          []*Group                `json:"groups,omitempty"`
	ClusterPolicies []*ClusterNetworkPolicy `json:"clusterNetworkPolicies,omitempty"`
	Policies        []*NetworkPolicy        `json:"networkPolicies,omitempty"`
	Pools           []*ExternalIPPool       `json:"externalIPPools,omitempty"`
	OwnPools        []*OwnExternalIPPool    `json:"ownExternalIPPools,omitempty"`
	Egresses        []*Egress               `json:"egresses,omitempty"`
	NodeEgresses    []*NodeEgress           `json:"nodeEgresses,omitempty"`
	NetNamespaces   []*NetNamespace         `json:"netNamespaces,omitempty"`
	HostSubnets     []*HostSubnet           `json:"hostSubnets,omitempty"`
	EgressPolicies  []*EgressNetworkPolicy  `json:"egressNetworkPolicies,omitempty"`
	// Isolation reports that namespaces are isolated (setting isolation). It is no object, but NetNamespaces,
	// HostSubnets and EgressNetworkPolicies mean nothing without it.
	Isolation bool `json:"isolation,omitempty"`
}

// All lists the objects, kind by kind.
func (o Objects) All() []Object {
	var all []Object
	for _, x := range o.Tiers {
		all = append(all, x)
	}
	for _, x := range o.ClusterGroups {
		all = append(all, x)
	}
	for _, x := range o.Groups {
		all = append(all, x)
	}
	for _, x := range o.ClusterPolicies {
		all = append(all, x)
	}
	for _, x := range o.Policies {
		all = append(all, x)
	}
	for _, x := range o.Pools {
		all = append(all, x)
	}
	for _, x := range o.OwnPools {
		all = append(all, x)
	}
	for _, x := range o.Egresses {
		all = append(all, x)
	}
	for _, x := range o.NodeEgresses {
		all = append(all, x)
	}
	for _, x := range o.NetNamespaces {
		all = append(all, x)
	}
	for _, x := range o.HostSubnets {
		all = append(all, x)
	}
	for _, x := range o.EgressPolicies {
		all = append(all, x)
	}
	return all
}

// Put adds an object, or replaces the one of the same name. Lists that others hold do not change.
func (o *Objects) Put(object Object) {
	switch x := object.(type) {
	case *Tier:
		o.Tiers = put(o.Tiers, x)
	case *ClusterGroup:
		o.ClusterGroups = put(o.ClusterGroups, x)
	case *Group:
		o.Groups = put(o.Groups, x)
	case *ClusterNetworkPolicy:
		o.ClusterPolicies = put(o.ClusterPolicies, x)
	case *NetworkPolicy:
		o.Policies = put(o.Policies, x)
	case *ExternalIPPool:
		o.Pools = put(o.Pools, x)
	case *OwnExternalIPPool:
		o.OwnPools = put(o.OwnPools, x)
	case *Egress:
		o.Egresses = put(o.Egresses, x)
	case *NodeEgress:
		o.NodeEgresses = put(o.NodeEgresses, x)
	case *NetNamespace:
		o.NetNamespaces = put(o.NetNamespaces, x)
	case *HostSubnet:
		o.HostSubnets = put(o.HostSubnets, x)
	case *EgressNetworkPolicy:
		o.EgressPolicies = put(o.EgressPolicies, x)
	}
}

func put[O Object](list []O, object O) []O {
	if at := slices.IndexFunc(list, func(o O) bool { return o.ID() == object.ID() }); at >= 0 {
		list = slices.Clone(list)
		list[at] = object
		return list
	}
	return append(slices.Clip(list), object)
}
