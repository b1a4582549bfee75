package leases

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// Lease is a Lease.
type Lease struct {
	Name string
	// Version is its resource version as it was read; "" for a new one.
	Version string
	// Created is the time by the clock of the API server.
	Created             time.Time
	Labels, Annotations map[string]string
	Spec                coordinationv1.LeaseSpec
}

// Decode returns the Lease in an object. One that is no valid Lease has no holder.
func Decode(o *unstructured.Unstructured) *Lease {
	l := &Lease{Name: o.GetName(), Version: o.GetResourceVersion(), Created: o.GetCreationTimestamp().Time, Labels: o.GetLabels(), Annotations: o.GetAnnotations()}
	fields, _, err := unstructured.NestedMap(o.Object, "spec")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &l.Spec)
	}
	if err != nil {
		l.Spec = coordinationv1.LeaseSpec{}
	}
	return l
}

// Holder returns the name of the holder, or "".
func (l *Lease) Holder() string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Duration returns how long the Lease is valid without a renewal, or this one if it does not say so.
func (l *Lease) Duration(otherwise time.Duration) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return otherwise
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// Hold sets the holder and the time of the renewal; "" is nobody.
func (l *Lease) Hold(holder string, duration time.Duration) {
	now, transitions, seconds := metav1.NowMicro(), int32(0), max(1, int32(duration/time.Second))
	if l.Spec.LeaseTransitions != nil {
		transitions = *l.Spec.LeaseTransitions
	}
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: l.Spec.AcquireTime, RenewTime: &now, LeaseTransitions: &transitions,
	}
	if l.Holder() != holder || l.Spec.HolderIdentity == nil {
		spec.AcquireTime = &now
		if l.Spec.HolderIdentity != nil && holder != "" {
			transitions++
		}
	}
	l.Spec = spec
}

// Client reads and writes the Leases of a namespace.
type Client struct{ API dynamic.ResourceInterface }

// New returns a client for a namespace.
func New(client dynamic.Interface, namespace string) Client {
	return Client{client.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(namespace)}
}

// Get reads a Lease.
func (c Client) Get(ctx context.Context, name string) (*Lease, error) {
	o, err := c.API.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the Lease %s: %w", name, err)
	}
	return Decode(o), nil
}

// List reads the Leases that a label selector matches.
func (c Client) List(ctx context.Context, selector string) ([]*Lease, error) {
	list, err := c.API.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list the Leases with %s: %w", selector, err)
	}
	var all []*Lease
	for i := range list.Items {
		all = append(all, Decode(&list.Items[i]))
	}
	return all, nil
}

// Put creates the Lease if it has no version. Otherwise it writes it if it is still that version. It sets the new version.
func (c Client) Put(ctx context.Context, l *Lease) error {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": coordinationv1.SchemeGroupVersion.String(), "kind": "Lease"}}
	o.SetName(l.Name)
	o.SetLabels(l.Labels)
	o.SetAnnotations(l.Annotations)
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&l.Spec)
	if err != nil {
		return fmt.Errorf("encode the Lease %s: %w", l.Name, err)
	}
	o.Object["spec"] = spec
	if l.Version == "" {
		if o, err = c.API.Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create the Lease %s: %w", l.Name, err)
		}
	} else {
		o.SetResourceVersion(l.Version)
		if o, err = c.API.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update the Lease %s: %w", l.Name, err)
		}
	}
	l.Version = o.GetResourceVersion()
	return nil
}

// Delete deletes the Lease if it is still the version that was read.
func (c Client) Delete(ctx context.Context, l *Lease) error {
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &l.Version}}
	if err := c.API.Delete(ctx, l.Name, o); err != nil {
		return fmt.Errorf("delete the Lease %s: %w", l.Name, err)
	}
	return nil
}
