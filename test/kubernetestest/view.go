package kubernetestest

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/model"
)

// patience bounds the wait of a test.
const patience = 30 * time.Second

// View is the state that a source has delivered.
type View struct {
	source *kubernetes.Source

	mu sync.Mutex
	Seen
	moved chan struct{}
}

// Seen is a cluster as the batches of a source describe it.
type Seen struct {
	Nodes      map[string]*corev1.Node
	Namespaces map[string]*corev1.Namespace
	Pods       map[model.PodID]*corev1.Pod
	// Policies are by namespace/name; those that are closed have their event.
	Policies map[string]*networkingv1.NetworkPolicy
	Closed   map[string]datastore.NetworkPolicyClosed
	// ClusterPolicies are by name.
	ClusterPolicies map[string]*v1alpha2.ClusterNetworkPolicy
	// Antrea are the objects of Antrea's API.
	Antrea map[antrea.ID]antrea.Object
	// Services are nil if the source did not deliver any.
	Services []netip.Prefix
	// ServiceObjects and Slices are by namespace/name.
	ServiceObjects map[string]*corev1.Service
	Slices         map[string]*discoveryv1.EndpointSlice
	Last           datastore.Batch
	// Events counts all events, Deleted those that delete something.
	Events, Deleted int
	// Largest is the number of events of the largest batch.
	Largest int
}

// Open starts a source and collects its batches until the test ends.
func Open(t testing.TB, config *rest.Config, log *slog.Logger, more ...func(*kubernetes.Options)) *View {
	t.Helper()
	o := kubernetes.Options{Config: config, Node: "n1", Log: log}
	for _, set := range more {
		set(&o)
	}
	source, err := kubernetes.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return Follow(t, source)
}

// NetNamespaces has a source read NetNamespaces, to which the role of the agents gives no right.
func NetNamespaces(o *kubernetes.Options) { o.NetNamespaces = true }

// Follow runs a source and collects its batches until the test ends.
func Follow(t testing.TB, source *kubernetes.Source) *View {
	t.Helper()
	v := &View{source: source, moved: make(chan struct{}), Seen: Seen{
		Nodes: map[string]*corev1.Node{}, Namespaces: map[string]*corev1.Namespace{}, Pods: map[model.PodID]*corev1.Pod{},
		Policies: map[string]*networkingv1.NetworkPolicy{}, Closed: map[string]datastore.NetworkPolicyClosed{},
		ClusterPolicies: map[string]*v1alpha2.ClusterNetworkPolicy{}, Antrea: map[antrea.ID]antrea.Object{},
		ServiceObjects: map[string]*corev1.Service{}, Slices: map[string]*discoveryv1.EndpointSlice{},
	}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx, func(b datastore.Batch) { v.take(t, b) }) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the source ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the source does not end")
		}
	})
	return v
}

// Source returns the source itself.
func (v *View) Source() *kubernetes.Source { return v.source }

// Sync waits until everything the API server has is delivered, and returns it.
func (v *View) Sync(t testing.TB) Seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	revision, err := v.source.Sync(ctx)
	if err != nil {
		t.Fatalf("sync: %v", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Last.Revision < revision {
		t.Errorf("sync answered revision %d, delivered is %d", revision, v.Last.Revision)
	}
	return v.seenLocked()
}

// seenLocked returns a copy that no batch changes.
func (v *View) seenLocked() Seen {
	s := v.Seen
	s.Nodes, s.Namespaces, s.Pods = maps.Clone(s.Nodes), maps.Clone(s.Namespaces), maps.Clone(s.Pods)
	s.Policies, s.Closed = maps.Clone(s.Policies), maps.Clone(s.Closed)
	s.ClusterPolicies, s.Antrea = maps.Clone(s.ClusterPolicies), maps.Clone(s.Antrea)
	s.ServiceObjects, s.Slices = maps.Clone(s.ServiceObjects), maps.Clone(s.Slices)
	return s
}

// Until waits until the delivered state is as desired.
func (v *View) Until(t testing.TB, what string, wanted func(Seen) bool) Seen {
	t.Helper()
	deadline := time.After(patience)
	for {
		v.mu.Lock()
		seen, moved := v.seenLocked(), v.moved
		v.mu.Unlock()
		ok := wanted(seen)
		if ok {
			return seen
		}
		select {
		case <-moved:
		case <-deadline:
			t.Fatalf("%s: never happened; problems: %v", what, seen.Last.Problems)
		}
	}
}

// Now returns the delivered state so far.
func (v *View) Now() Seen {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seenLocked()
}

// take applies a batch, and checks the rules for every batch.
func (v *View) take(t testing.TB, b datastore.Batch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if b.Revision != v.Last.Revision+1 {
		t.Errorf("revision %d follows %d", b.Revision, v.Last.Revision)
	}
	if v.Last.InSync && !b.InSync {
		t.Error("in sync no more")
	}
	rank := -1
	for _, e := range b.Events {
		if r := rankOf(e); r < rank {
			t.Errorf("event %T comes behind one of rank %d", e, rank)
		} else {
			rank = r
		}
		v.event(e)
	}
	v.Last = b
	v.Events += len(b.Events)
	v.Largest = max(v.Largest, len(b.Events))
	close(v.moved)
	v.moved = make(chan struct{})
}

func (v *View) event(e datastore.Event) {
	switch e := e.(type) {
	case datastore.NodeSet:
		v.Nodes[e.Node.Name] = e.Node
	case datastore.NodeDeleted:
		delete(v.Nodes, e.Name)
		v.Deleted++
	case datastore.NamespaceSet:
		v.Namespaces[e.Namespace.Name] = e.Namespace
	case datastore.NamespaceDeleted:
		delete(v.Namespaces, e.Name)
		v.Deleted++
	case datastore.ServiceCIDRsSet:
		v.Services = append([]netip.Prefix{}, e.Prefixes...)
	case datastore.PodSet:
		v.Pods[model.PodID{Namespace: e.Pod.Namespace, Name: e.Pod.Name}] = e.Pod
	case datastore.PodDeleted:
		delete(v.Pods, e.ID)
		v.Deleted++
	case datastore.NetworkPolicySet:
		at := path(e.Policy.Namespace, e.Policy.Name)
		v.Policies[at] = e.Policy
		delete(v.Closed, at)
	case datastore.NetworkPolicyClosed:
		at := path(e.Namespace, e.Name)
		v.Closed[at] = e
		delete(v.Policies, at)
	case datastore.NetworkPolicyDeleted:
		at := path(e.Namespace, e.Name)
		delete(v.Policies, at)
		delete(v.Closed, at)
		v.Deleted++
	case datastore.ClusterNetworkPolicySet:
		v.ClusterPolicies[e.Policy.Name] = e.Policy
	case datastore.ClusterNetworkPolicyDeleted:
		delete(v.ClusterPolicies, e.Name)
		v.Deleted++
	case datastore.AntreaSet:
		v.Antrea[e.Object.ID()] = e.Object
	case datastore.AntreaDeleted:
		delete(v.Antrea, e.ID)
		v.Deleted++
	case datastore.ServiceSet:
		v.ServiceObjects[path(e.Service.Namespace, e.Service.Name)] = e.Service
	case datastore.ServiceDeleted:
		delete(v.ServiceObjects, path(e.Namespace, e.Name))
		v.Deleted++
	case datastore.EndpointSliceSet:
		v.Slices[path(e.Slice.Namespace, e.Slice.Name)] = e.Slice
	case datastore.EndpointSliceDeleted:
		delete(v.Slices, path(e.Namespace, e.Name))
		v.Deleted++
	}
}

// rankOf returns the place of an event among others: of sets in the order of kinds, of deletions
// in the reverse one.
func rankOf(e datastore.Event) int {
	const deletions = 100 // after all others
	switch e := e.(type) {
	case datastore.NodeSet:
		return 0
	case datastore.NamespaceSet:
		return 1
	case datastore.ServiceCIDRsSet:
		return 2
	case datastore.PodSet:
		return 3
	case datastore.NetworkPolicySet, datastore.NetworkPolicyClosed:
		return 4
	case datastore.ClusterNetworkPolicySet, datastore.ServiceSet, datastore.EndpointSliceSet:
		return 5
	case datastore.AntreaSet:
		return 5 + int(e.Object.ID().Kind)
	case datastore.AntreaDeleted:
		return 6 + 2*len(antrea.Kinds()) - int(e.ID.Kind)
	case datastore.ServiceDeleted, datastore.EndpointSliceDeleted:
		return deletions - 1
	case datastore.ClusterNetworkPolicyDeleted:
		return deletions
	case datastore.NetworkPolicyDeleted:
		return deletions + 1
	case datastore.PodDeleted:
		return deletions + 2
	case datastore.NamespaceDeleted:
		return deletions + 3
	}
	return deletions + 4
}
