package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// kindName is a kind of object that we use. The order is that of events.
type kindName uint8

const (
	kindNode kindName = iota
	kindNamespace
	kindServiceCIDR
	kindPod
	kindPolicy
	kindClusterPolicy
	kindService
	kindEndpointSlice
	kindAntreaTier
	kindAntreaClusterGroup
	kindAntreaGroup
	kindAntreaClusterPolicy
	kindAntreaPolicy
	kindAntreaPool
	kindPool
	kindAntreaEgress
	kindEgress
	kindNetNamespace
	kindHostSubnet
	kindEgressNetworkPolicy
	kinds
)

// definition has the constant properties of a kind.
type definition struct {
	// name is the kind in messages and in model.ObjectRef.
	name string
	// resource is the API server's resource of the kind.
	resource schema.GroupVersionResource
	// optional: there are clusters without the kind. They are older, or lack the CustomResourceDefinition.
	optional bool
	// denies: an object may deny what is allowed without it. So the source does not go on without
	// the kind if it may not read it.
	denies bool
	// deleted returns the event that ends an object; nil for a kind without events of its own.
	deleted func(key) datastore.Event
}

// antrea returns the kind as a kind of the package antrea, and whether it is one. Both lists have one
// order.
func (k kindName) antrea() (antrea.Kind, bool) {
	return antrea.KindTier + antrea.Kind(k-kindAntreaTier), k >= kindAntreaTier && k < kinds
}

// defineAntrea returns the definition of a kind of Antrea's API. Groups and tiers count as kinds
// that deny: a policy that denies may name them. So does an Egress: without it, pods would have another address.
func defineAntrea(k antrea.Kind) definition {
	return definition{
		name: antrea.ID{Kind: k}.Ref().Kind, resource: k.GroupVersion().WithResource(k.Resource()),
		optional: true, denies: true,
		deleted: func(n key) datastore.Event {
			return datastore.AntreaDeleted{ID: antrea.ID{Kind: k, Namespace: n.namespace, Name: n.name}}
		},
	}
}

func (k kindName) definition() definition {
	if kind, is := k.antrea(); is {
		return defineAntrea(kind)
	}
	switch k {
	case kindNode:
		return definition{
			name: "Node", resource: corev1.SchemeGroupVersion.WithResource("nodes"),
			deleted: func(n key) datastore.Event { return datastore.NodeDeleted{Name: n.name} },
		}
	case kindNamespace:
		return definition{
			name: "Namespace", resource: corev1.SchemeGroupVersion.WithResource("namespaces"),
			deleted: func(n key) datastore.Event { return datastore.NamespaceDeleted{Name: n.name} },
		}
	case kindServiceCIDR:
		return definition{
			name: "ServiceCIDR", resource: networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), optional: true,
		}
	case kindPod:
		return definition{
			name: "Pod", resource: corev1.SchemeGroupVersion.WithResource("pods"),
			deleted: func(n key) datastore.Event {
				return datastore.PodDeleted{ID: model.PodID{Namespace: n.namespace, Name: n.name}}
			},
		}
	case kindPolicy:
		return definition{
			name: "NetworkPolicy", resource: networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
			deleted: func(n key) datastore.Event {
				return datastore.NetworkPolicyDeleted{Namespace: n.namespace, Name: n.name}
			},
		}
	case kindClusterPolicy:
		return definition{
			name: "ClusterNetworkPolicy", resource: schema.GroupVersion(v1alpha2.GroupVersion).WithResource("clusternetworkpolicies"),
			optional: true, denies: true,
			deleted: func(n key) datastore.Event { return datastore.ClusterNetworkPolicyDeleted{Name: n.name} },
		}
	case kindService:
		return definition{
			name: "Service", resource: corev1.SchemeGroupVersion.WithResource("services"),
			deleted: func(n key) datastore.Event { return datastore.ServiceDeleted{Namespace: n.namespace, Name: n.name} },
		}
	case kindEndpointSlice:
		return definition{
			name: "EndpointSlice", resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
			deleted: func(n key) datastore.Event {
				return datastore.EndpointSliceDeleted{Namespace: n.namespace, Name: n.name}
			},
		}
	}
	return definition{}
}

// String returns the kind as users write it.
func (k kindName) String() string { return k.definition().name }

// api returns the kind as its group of the API names it. Two groups may have kinds of one name.
func (k kindName) api() string {
	if kind, is := k.antrea(); is {
		return kind.String()
	}
	return k.String()
}

// resource returns the API server's resource of the kind.
func (k kindName) resource() schema.GroupVersionResource { return k.definition().resource }

// plural returns the name of the resource in messages, with the group where two groups have the same.
func (k kindName) plural() string {
	if _, is := k.antrea(); is {
		return k.resource().GroupResource().String()
	}
	return k.resource().Resource
}

// fields selects the objects that are asked for. Pods that are done will not run
// again: to us, they are gone.
func (k kindName) fields() string {
	if k == kindPod {
		return "status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed)
	}
	return ""
}

// labels selects the objects that are asked for: not those of other proxies, nor what is labelled as headless.
func (k kindName) labels() string {
	switch k {
	case kindService:
		return "!" + model.ServiceProxyName + ",!" + corev1.IsHeadlessService
	case kindEndpointSlice:
		return "!" + model.ServiceProxyName + ",!" + corev1.IsHeadlessService + "," + discoveryv1.LabelServiceName
	}
	return ""
}

func (k kindName) ref(n key) model.ObjectRef {
	return model.ObjectRef{Kind: k.String(), Namespace: n.namespace, Name: n.name}
}

// deleted returns the event that ends an object; nil for kinds that have no
// events of their own.
func (k kindName) deleted(n key) datastore.Event {
	if event := k.definition().deleted; event != nil {
		return event(n)
	}
	return nil
}

// kind is how objects of a kind are read, trimmed and decoded.
type kind struct {
	name   kindName
	list   func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
	trim   func(runtime.Object) ([]byte, error)
	decode func(*item) (decoded, error)
	// reported reports whether this node records Events about the object; nil stands for any object.
	reported func(runtime.Object) bool
}

// lister is a client for the objects of one kind.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func newKind[L runtime.Object](name kindName, c lister[L], trim func(runtime.Object) ([]byte, error), decode func(*item) (decoded, error)) *kind {
	return &kind{
		name: name, trim: trim, decode: decode, watch: c.Watch,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) },
	}
}
