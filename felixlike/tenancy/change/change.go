// Package change joins namespaces, isolates them and makes them global: it writes their NetNamespaces, for felixctl and for the
// agents, which do what the annotation of `oc adm pod-network` asks for.
//
// No two changes at the same time join namespaces that neither of them was asked to join:
//
//   - Each write replaces the version that was read. After a conflict, everything is read again.
//   - A namespace joins another one by taking its number as it is then.
//   - A new number comes from the annotation of one Lease, which counts upwards, so it has no other owner. One that a
//     namespace has given up is given out again after all others.
//   - A namespace without a NetNamespace is isolated already: it gets a number when another one joins it.
//
// The package reaches the API server by a Cluster. It is tested against one in memory with many changes at once, by
// cmd/felixctl/netnamespace with kubectl, and by felixlike/netnamespaces with the agents' client.
package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/model"
)

// Resource is a resource of the API server. Namespace is empty for one of the cluster.
type Resource struct {
	schema.GroupVersionResource
	Namespace string
}

// NetNamespaces are the NetNamespaces.
func NetNamespaces() Resource {
	return Resource{GroupVersionResource: schema.GroupVersionResource{Group: antrea.NetNamespaceGroupName, Version: antrea.NetNamespaceVersion, Resource: "netnamespaces"}}
}

// Cluster is an API server. Its errors are those of k8s.io/apimachinery/pkg/api/errors: NotFound, Conflict, AlreadyExists.
type Cluster interface {
	Get(ctx context.Context, r Resource, name string) (*unstructured.Unstructured, error)
	List(ctx context.Context, r Resource) ([]unstructured.Unstructured, error)
	Create(ctx context.Context, r Resource, o *unstructured.Unstructured) error
	// Update replaces the object if it is still the version that o has.
	Update(ctx context.Context, r Resource, o *unstructured.Unstructured) error
	// Exists reports whether there is a namespace.
	Exists(ctx context.Context, namespace string) (bool, error)
}

// Changer makes changes.
type Changer struct {
	Cluster
	// Namespace is that of the agents, which has the Lease with the last number.
	Namespace string
	// asked is the annotation that the change answers; "" for a change that answers none.
	asked string
}

// Change is what has become of a namespace. A number is nil if it has none.
type Change struct {
	Namespace     string
	Before, After *int64
	// Written is set if there was something to write.
	Written bool
}

// tries is how often a change begins again after conflicts.
const tries = 20

// Join joins a namespace to another one, which keeps the namespaces that are joined to it. One that is global is refused: the
// namespace would be global, too.
func (c Changer) Join(ctx context.Context, namespace, to string) (Change, error) {
	if err := CannotJoin(namespace, to, nil); err != nil {
		return Change{}, err
	}
	if err := c.exist(ctx, to); err != nil {
		return Change{}, err
	}
	all, err := c.All(ctx)
	if err != nil {
		return Change{}, err
	}
	if err := OtherAddresses(all, namespace, to); err != nil {
		return Change{}, err
	}
	var number int64
	done, err := c.change(ctx, namespace, true, func(*antrea.NetNamespace) (*int64, error) {
		n, err := c.NumberOf(ctx, to)
		number = n
		return &number, err
	})
	if err != nil {
		return done, err
	}
	now, err := c.read(ctx, to)
	if err == nil && (now == nil || tenancy.NumberOf(now) == nil || *tenancy.NumberOf(now) != number) {
		err = fmt.Errorf("namespace %s has number %d, but another program has changed %s meanwhile: look at both, and join again", namespace, number, to)
	}
	return done, err
}

// CannotJoin returns why a namespace cannot join another one with that number, which is nil if it has none.
func CannotJoin(namespace, to string, number *int64) error {
	switch {
	case namespace == to:
		return fmt.Errorf("namespace %s cannot join itself", namespace)
	case number != nil && *number == 0:
		return fmt.Errorf("namespace %s is global: all namespaces reach it already, and a namespace that joins it would be global, too", to)
	}
	return nil
}

// OtherAddresses returns an error if a namespace and one that it would be joined with have other egressIPs: nothing of either would leave
// the cluster. all are the NetNamespaces.
func OtherAddresses(all []*antrea.NetNamespace, namespace, to string) error {
	of := func(name string) *antrea.NetNamespace {
		i := slices.IndexFunc(all, func(o *antrea.NetNamespace) bool { return o.Name == name })
		if i < 0 {
			return &antrea.NetNamespace{}
		}
		return all[i]
	}
	own, class := of(namespace), tenancy.NumberOf(of(to))
	for _, o := range all {
		number := tenancy.NumberOf(o)
		with := o.Name == to || class != nil && number != nil && *number == *class
		if with && o.Name != namespace && len(own.EgressIPs) > 0 && len(o.EgressIPs) > 0 && !tenancy.SameAddresses(own, o) {
			return fmt.Errorf("namespace %s has the egressIPs %s, and %s, which it would be joined with, has %s: nothing that their pods send would leave the cluster. Give both the same, or remove those of one",
				namespace, strings.Join(own.EgressIPs, ", "), o.Name, strings.Join(o.EgressIPs, ", "))
		}
	}
	return nil
}

// Isolate isolates a namespace from all others.
func (c Changer) Isolate(ctx context.Context, namespace string) (Change, error) {
	own := c.newNumber(ctx)
	return c.change(ctx, namespace, false, func(now *antrea.NetNamespace) (*int64, error) {
		if now == nil {
			return nil, nil
		}
		used, err := c.used(ctx)
		if err != nil {
			return nil, err
		}
		if has := tenancy.NumberOf(now); has != nil && *has != 0 && used[*has] == 1 {
			return has, nil
		}
		return own()
	})
}

// newNumber returns a function that takes a new number when it is called first, and returns the same one later.
func (c Changer) newNumber(ctx context.Context) func() (*int64, error) {
	var own *int64
	return func() (*int64, error) {
		if own == nil {
			n, err := c.number(ctx)
			if err != nil {
				return nil, err
			}
			own = &n
		}
		return own, nil
	}
}

// Global makes a namespace global.
func (c Changer) Global(ctx context.Context, namespace string) (Change, error) {
	return c.change(ctx, namespace, false, func(*antrea.NetNamespace) (*int64, error) { return new(int64), nil })
}

// NumberOf returns the number of a namespace, which gets one if it has none.
func (c Changer) NumberOf(ctx context.Context, namespace string) (int64, error) {
	own := c.newNumber(ctx)
	done, err := c.write(ctx, namespace, nil, func(now *antrea.NetNamespace) (*int64, error) {
		if now != nil {
			switch has := tenancy.NumberOf(now); {
			case has == nil:
			case *has == 0:
				return nil, CannotJoin("", namespace, has)
			default:
				return has, nil
			}
		}
		return own()
	})
	if err != nil {
		return 0, err
	}
	return *done.After, nil
}

// Number gives a namespace without a NetNamespace a number that no other namespace has.
func (c Changer) Number(ctx context.Context, namespace string) (Change, error) {
	var own *int64
	if err := c.exist(ctx, namespace); err != nil {
		return Change{}, err
	}
	return c.write(ctx, namespace, nil, func(now *antrea.NetNamespace) (*int64, error) {
		if now != nil {
			return nil, nil
		}
		if own == nil {
			n, err := c.number(ctx)
			if err != nil {
				return nil, err
			}
			own = &n
		}
		return own, nil
	})
}

// exist returns an error if there is no such namespace.
func (c Changer) exist(ctx context.Context, namespace string) error {
	found, err := c.Exists(ctx, namespace)
	if err != nil {
		return fmt.Errorf("look for namespace %s: %w", namespace, err)
	}
	if !found {
		return fmt.Errorf("there is no namespace %s", namespace)
	}
	return nil
}

// change gives an existing namespace the number that decide returns, and notes whether it is joined by it. A change that the
// annotation asks for is done with it: the later one counts.
func (c Changer) change(ctx context.Context, namespace string, joined bool, decide func(now *antrea.NetNamespace) (*int64, error)) (Change, error) {
	if err := c.exist(ctx, namespace); err != nil {
		return Change{}, err
	}
	return c.write(ctx, namespace, &joined, decide)
}

// write gives a namespace the number that decide returns for its NetNamespace, which is nil if it has none. It asks
// again if another program has changed the object meanwhile. With joined the same write sets the annotations of a change.
func (c Changer) write(ctx context.Context, namespace string, joined *bool, decide func(now *antrea.NetNamespace) (*int64, error)) (Change, error) {
	var err error
	for range tries {
		var done Change
		done, err = c.try(ctx, namespace, joined, decide)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
			return done, err
		}
	}
	return Change{}, fmt.Errorf("NetNamespace %s has changed again and again: %w", namespace, err)
}

func (c Changer) try(ctx context.Context, namespace string, joined *bool, decide func(now *antrea.NetNamespace) (*int64, error)) (Change, error) {
	o, err := c.Get(ctx, NetNamespaces(), namespace)
	if apierrors.IsNotFound(err) {
		o, err = nil, nil
	}
	if err != nil {
		return Change{}, fmt.Errorf("read NetNamespace %s: %w", namespace, err)
	}
	if joined != nil && c.asked != "" && (o == nil || o.GetAnnotations()[Annotation] != c.asked) {
		return Change{}, errNotAsked
	}
	done := Change{Namespace: namespace}
	var now *antrea.NetNamespace
	if o != nil {
		now = decode(o)
		done.Before = now.NetID
	}
	if done.After, err = decide(now); err != nil || done.After == nil {
		return done, err
	}
	put, verb := c.Update, "update"
	if o == nil {
		put, verb = c.Create, "create"
		o = &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(NetNamespaces().GroupVersion().WithKind(antrea.KindNetNamespace.String()))
		o.SetName(namespace)
	}
	before := o.DeepCopy()
	o.Object["netname"], o.Object["netid"] = namespace, *done.After
	if joined != nil {
		annotate(o, *joined, *done.After)
	}
	if equality.Semantic.DeepEqual(before, o) {
		return done, nil
	}
	if err := put(ctx, NetNamespaces(), o); err != nil {
		return Change{}, fmt.Errorf("%s NetNamespace %s: %w", verb, namespace, err)
	}
	done.Written = true
	return done, nil
}

// annotate removes the annotation that asks for a change, and notes whether the object is joined by its number.
func annotate(o *unstructured.Unstructured, joined bool, number int64) {
	annotations := o.GetAnnotations()
	delete(annotations, Annotation)
	delete(annotations, model.JoinedAnnotation)
	if joined {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[model.JoinedAnnotation] = strconv.FormatInt(number, 10)
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
}

// read returns the NetNamespace of a namespace, or nil.
func (c Changer) read(ctx context.Context, namespace string) (*antrea.NetNamespace, error) {
	o, err := c.Get(ctx, NetNamespaces(), namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read NetNamespace %s: %w", namespace, err)
	}
	return decode(o), nil
}

// decode returns a NetNamespace. One that cannot be decoded has a name and no number.
func decode(o *unstructured.Unstructured) *antrea.NetNamespace {
	n := &antrea.NetNamespace{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, n) != nil {
		n = &antrea.NetNamespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
	}
	return n
}

// All returns all NetNamespaces.
func (c Changer) All(ctx context.Context) ([]*antrea.NetNamespace, error) {
	list, err := c.List(ctx, NetNamespaces())
	if err != nil {
		return nil, fmt.Errorf("list NetNamespaces: %w", err)
	}
	var all []*antrea.NetNamespace
	for i := range list {
		all = append(all, decode(&list[i]))
	}
	return all, nil
}

// used returns how many NetNamespaces have each number.
func (c Changer) used(ctx context.Context) (map[int64]int, error) {
	all, err := c.All(ctx)
	used := map[int64]int{}
	for _, o := range all {
		if o.NetID != nil {
			used[*o.NetID]++
		}
	}
	return used, err
}

var errNoNumber = errors.New("all numbers are in use")
