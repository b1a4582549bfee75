package kubernetes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// newScheme returns a scheme with the types of the groups that we use. The one of
// client-go's clientset has all groups of Kubernetes, which weigh 16 MB with their clients.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	groups := runtime.NewSchemeBuilder(corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, eventsv1.AddToScheme)
	return s, groups.AddToScheme(s)
}

// resources reads the objects of a kind, in all namespaces, as lists of type L.
type resources[L runtime.Object] struct {
	client *rest.RESTClient
	name   string
	empty  func() L
}

// resource returns the reader of a kind for the client of its API group.
func resource[L interface {
	*T
	runtime.Object
}, T any](client *rest.RESTClient, k kindName) resources[L] {
	return resources[L]{client: client, name: k.resource().Resource, empty: func() L { return new(T) }}
}

func (r resources[L]) request(o *metav1.ListOptions) *rest.Request {
	q := r.client.Get().Resource(r.name).SpecificallyVersionedParams(o, metav1.ParameterCodec, metav1.Unversioned)
	if o.TimeoutSeconds != nil {
		q = q.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return q
}

// List implements lister.
func (r resources[L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	list := r.empty()
	err := r.request(&o).Do(ctx).Into(list)
	return list, err
}

// Watch implements lister.
func (r resources[L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return r.request(&o).Watch(ctx)
}
