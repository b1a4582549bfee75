// Package datastore is the contract between the sources of Kubernetes objects and the driver: batches of
// typed changes, each with a revision. Sources live in the folders below. They decode and default objects,
// keep the last good version of an object that became unreadable, and report problems.
//
// It may not interpret policy: selectors belong to felixlike/policy. Every source is tested in its own folder
// on the real thing.
package datastore

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// Event is one change of one object: one of the types of this file. Objects are shared by all receivers and
// must not be modified. Source is the object's origin for people: a file name.
type Event interface{ isEvent() }

// NodeSet says that a node is new or changed.
type NodeSet struct {
	Node   *corev1.Node
	Source string
}

// NodeDeleted says that a node is gone.
type NodeDeleted struct{ Name string }

// NamespaceSet says that a namespace is new or changed.
type NamespaceSet struct {
	Namespace *corev1.Namespace
	Source    string
}

// NamespaceDeleted says that a namespace is gone.
type NamespaceDeleted struct{ Name string }

// ServiceCIDRsSet has the prefixes of Service addresses, all of them, sorted. A source that does not know
// them does not send it.
type ServiceCIDRsSet struct{ Prefixes []netip.Prefix }

// PodSet says that a pod is new or changed.
type PodSet struct {
	Pod    *corev1.Pod
	Source string
}

// PodDeleted says that a pod is gone.
type PodDeleted struct{ ID model.PodID }

// NetworkPolicySet says that a policy is new or changed. It replaces a
// NetworkPolicyClosed of that name.
type NetworkPolicySet struct {
	Policy *networkingv1.NetworkPolicy
	Source string
}

// NetworkPolicyClosed says that a policy exists which cannot be understood,
// and of which no good version is known. It stands for a policy that isolates
// the pods it selects in both directions and allows nothing.
type NetworkPolicyClosed struct {
	Namespace, Name string
	// PodSelector is the policy's; nil, where that cannot be understood
	// either, stands for every pod of the namespace.
	PodSelector *metav1.LabelSelector
}

// NetworkPolicyDeleted says that a policy, readable or closed, is gone.
type NetworkPolicyDeleted struct{ Namespace, Name string }

// ClusterNetworkPolicySet reports a new or changed ClusterNetworkPolicy. Its parts that were not understood
// are empty, so that they fail closed (strict.ClosedSpec).
type ClusterNetworkPolicySet struct {
	Policy *v1alpha2.ClusterNetworkPolicy
	Source string
}

// ClusterNetworkPolicyDeleted says that a ClusterNetworkPolicy is gone.
type ClusterNetworkPolicyDeleted struct{ Name string }

// AntreaSet reports a new or changed object of Antrea's API. Its parts that were not understood are such that
// they fail closed (strict.DecodeAntrea).
type AntreaSet struct {
	Object antrea.Object
	Source string
}

// AntreaDeleted says that an object of Antrea's API is gone.
type AntreaDeleted struct{ ID antrea.ID }

// ServiceSet says that a Service is new or changed. Sources deliver Services and EndpointSlices only if they are told to.
type ServiceSet struct {
	Service *corev1.Service
	Source  string
}

// ServiceDeleted says that a Service is gone.
type ServiceDeleted struct{ Namespace, Name string }

// EndpointSliceSet says that an EndpointSlice is new or changed.
type EndpointSliceSet struct {
	Slice  *discoveryv1.EndpointSlice
	Source string
}

// EndpointSliceDeleted says that an EndpointSlice is gone.
type EndpointSliceDeleted struct{ Namespace, Name string }

func (NodeSet) isEvent()                     {}
func (NodeDeleted) isEvent()                 {}
func (NamespaceSet) isEvent()                {}
func (NamespaceDeleted) isEvent()            {}
func (ServiceCIDRsSet) isEvent()             {}
func (PodSet) isEvent()                      {}
func (PodDeleted) isEvent()                  {}
func (NetworkPolicySet) isEvent()            {}
func (NetworkPolicyClosed) isEvent()         {}
func (NetworkPolicyDeleted) isEvent()        {}
func (ClusterNetworkPolicySet) isEvent()     {}
func (ClusterNetworkPolicyDeleted) isEvent() {}
func (AntreaSet) isEvent()                   {}
func (AntreaDeleted) isEvent()               {}
func (ServiceSet) isEvent()                  {}
func (ServiceDeleted) isEvent()              {}
func (EndpointSliceSet) isEvent()            {}
func (EndpointSliceDeleted) isEvent()        {}
