// Package netnamespaces does what annotations of NetNamespaces ask for, as `oc adm pod-network` writes them and OpenShift's
// controller answers them: one agent of the cluster, which holds a Lease.
//
// felixlike/tenancy/change decides what is written, the same for felixctl. An annotation that cannot be followed stays and is
// tried again; the log has the reason once. With Options.Number, it also gives a number to each namespace that has none, but for default. Nothing waits for this package: isolation is in force without it. Where the API server
// has no NetNamespaces it asks for nothing.
//
// It is tested against a real API server, with the rights of deploy/.
package netnamespaces

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/felixlike/leases/elect"
	"github.com/felixlike/felixlike/felixlike/tenancy/change"
)

// LeaseName is the name of the Lease; its holder writes.
const LeaseName = "felixlike-netnamespaces"

// effect is that of a failure.
const effect = "namespaces stay as they are"

// Rights returns the rights that Run needs for NetNamespaces, in addition to those to list and watch them. The component
// deploy/components/isolation grants them.
func Rights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{antrea.NetNamespaceGroupName}, Resources: []string{"netnamespaces"}, Verbs: []string{"get", "create", "update"}}}
}

// Options configure Run.
type Options struct {
	Client dynamic.Interface
	// Node is the name of this node, by which it holds the Lease.
	Node string
	// Namespace is that of the agents, where the Lease is.
	Namespace string
	// Nodes returns how many nodes there are: all are candidates.
	Nodes func() int
	// Needed reports whether there is a NetNamespace, or with Number whatever has to get one.
	Needed func() bool
	// Number has each namespace without a NetNamespace get one with a number of its own, for pipelineVariant: openshift.
	Number bool
	// Exists reports whether there is a namespace.
	Exists func(string) bool
	Log    *slog.Logger
	Timing Timing
}

// Timing has all times of the package.
type Timing struct {
	Election elect.Timing
	// Retry is the pause after the first failure. Each further one doubles it, up to RetryMost.
	Retry, RetryMost time.Duration
}

// DefaultTiming returns the times of an agent.
func DefaultTiming() Timing {
	return Timing{Election: elect.DefaultTiming(), Retry: time.Second, RetryMost: time.Minute}
}

// Run is a candidate for the Lease, and does what annotations ask for while it holds it, until ctx ends. It returns nil: nothing
// of it ends an agent.
func Run(ctx context.Context, o Options) error {
	return elect.Run(ctx, elect.Options{
		Client: o.Client, Node: o.Node, Namespace: o.Namespace, Lease: LeaseName, Nodes: o.Nodes, Needed: o.Needed, Log: o.Log, Timing: o.Timing.Election,
		Job: "agent that changes NetNamespaces", Does: "makes the changes that annotations of NetNamespaces ask for", Effect: effect,
		Work: func(ctx context.Context) { newWorker(o).run(ctx) },
	})
}

type worker struct {
	Options
	changer change.Changer
	read    leases.Said
	// failed has the annotation and the error of each NetNamespace whose annotation could not be followed.
	failed map[string][2]string
}

func newWorker(o Options) *worker {
	return &worker{
		Options: o, changer: change.Changer{Cluster: cluster{o}, Namespace: o.Namespace},
		read:   leases.Said{Log: o.Log, What: "read NetNamespaces to make the changes that annotations ask for", Effect: effect},
		failed: map[string][2]string{},
	}
}

// run follows annotations until ctx ends.
func (w *worker) run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	store, end := leases.Watch(ctx, w.Client.Resource(change.NetNamespaces().GroupVersionResource), "", &w.read, signal)
	defer end()
	if store == nil {
		return
	}
	var namespaces cache.Store
	if w.Number {
		all, end := leases.Watch(ctx, w.Client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", &w.read, signal)
		defer end()
		if namespaces = all; all == nil {
			return
		}
	}
	pause := w.Timing.Retry
	for {
		var again <-chan time.Time
		followed := w.pass(ctx, store)
		if numbered := w.number(ctx, namespaces, store); followed && numbered {
			pause = w.Timing.Retry
		} else {
			again = time.After(pause)
			pause = min(2*pause, w.Timing.RetryMost)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-changed:
		}
	}
}

// pass follows all annotations, and reports whether it could.
func (w *worker) pass(ctx context.Context, store cache.Store) bool {
	good, asking := true, map[string]bool{}
	for _, item := range store.List() {
		o, is := item.(*unstructured.Unstructured)
		if !is || ctx.Err() != nil {
			continue
		}
		name, asked := o.GetName(), o.GetAnnotations()[change.Annotation]
		if asked == "" {
			continue
		}
		asking[name] = true
		done, err := w.changer.Do(ctx, name, asked)
		if done.Written {
			w.Log.Info("NetNamespace changed", "namespace", name, "asked", asked, "number", *done.After)
		}
		if err == nil {
			continue
		}
		good = false
		failure := [2]string{asked, err.Error()}
		level := slog.LevelWarn
		if w.failed[name] == failure {
			level = slog.LevelDebug
		}
		w.failed[name] = failure
		if done.Written {
			w.Log.Warn("the namespace that a NetNamespace asked to join has changed meanwhile", "namespace", name, "asked", asked, "error", err)
			continue
		}
		w.Log.Log(ctx, level, "cannot make the change that a NetNamespace asks for: it is tried again; "+effect, "namespace", name, "asked", asked, "error", err)
	}
	for name := range w.failed {
		if !asking[name] {
			delete(w.failed, name)
		}
	}
	return good
}

// number gives numbers to the namespaces without a NetNamespace, and reports whether it could.
func (w *worker) number(ctx context.Context, namespaces, numbered cache.Store) bool {
	if namespaces == nil {
		return true
	}
	good := true
	for _, name := range namespaces.ListKeys() {
		// The namespace default is global without one.
		if _, has, _ := numbered.GetByKey(name); has || name == metav1.NamespaceDefault || ctx.Err() != nil {
			continue
		}
		done, err := w.changer.Number(ctx, name)
		switch {
		case err != nil:
			good = false
			w.Log.Warn("cannot give a namespace a number: it is tried again; its pods are closed", "namespace", name, "error", err)
		case done.Written:
			w.Log.Info("NetNamespace created", "namespace", name, "number", *done.After)
		}
	}
	return good
}

// cluster is a change.Cluster.
type cluster struct{ Options }

func (c cluster) of(r change.Resource) dynamic.ResourceInterface {
	all := c.Client.Resource(r.GroupVersionResource)
	if r.Namespace != "" {
		return all.Namespace(r.Namespace)
	}
	return all
}

func (c cluster) Get(ctx context.Context, r change.Resource, name string) (*unstructured.Unstructured, error) {
	return c.of(r).Get(ctx, name, metav1.GetOptions{})
}

func (c cluster) List(ctx context.Context, r change.Resource) ([]unstructured.Unstructured, error) {
	list, err := c.of(r).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (c cluster) Create(ctx context.Context, r change.Resource, o *unstructured.Unstructured) error {
	_, err := c.of(r).Create(ctx, o, metav1.CreateOptions{})
	return err
}

func (c cluster) Update(ctx context.Context, r change.Resource, o *unstructured.Unstructured) error {
	_, err := c.of(r).Update(ctx, o, metav1.UpdateOptions{})
	return err
}

func (c cluster) Exists(_ context.Context, namespace string) (bool, error) {
	return c.Options.Exists(namespace), nil
}
