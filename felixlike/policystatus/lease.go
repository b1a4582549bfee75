package policystatus

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// LeaseName is the name of the Lease; its holder writes.
const LeaseName = "felixlike-clusternetworkpolicies"

// lease is the Lease as one candidate sees it. Its methods are for one goroutine.
type lease struct {
	leases   dynamic.ResourceInterface
	identity string
	duration time.Duration
	// seen is the version of another holder's Lease that was read last, since the time
	// it was read first. Clocks of nodes differ, so renewTime decides nothing.
	seen  string
	since time.Time
}

// try takes or renews the Lease, and reports whether this candidate holds it.
func (l *lease) try(ctx context.Context) (bool, error) {
	o, err := l.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return l.won(l.create(ctx))
	case err != nil:
		return false, fmt.Errorf("get the Lease %s: %w", LeaseName, err)
	}
	var spec coordinationv1.LeaseSpec
	fields, _, err := unstructured.NestedMap(o.Object, "spec")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec)
	}
	if err != nil { // the Lease has no holder
		spec = coordinationv1.LeaseSpec{}
	}
	if holder := spec.HolderIdentity; holder != nil && *holder != "" && *holder != l.identity {
		if l.seen != o.GetResourceVersion() {
			l.seen, l.since = o.GetResourceVersion(), time.Now()
		}
		duration := l.duration
		if spec.LeaseDurationSeconds != nil {
			duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
		}
		if time.Since(l.since) < duration {
			return false, nil
		}
	}
	return l.won(l.update(ctx, o, &spec, l.identity))
}

// won reports whether a write made this candidate the holder. A conflict says that
// another one was faster.
func (l *lease) won(err error) (bool, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

func (l *lease) create(ctx context.Context) error {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": coordinationv1.SchemeGroupVersion.String(), "kind": "Lease", "metadata": map[string]any{"name": LeaseName},
	}}
	if err := l.fill(o, &coordinationv1.LeaseSpec{}, l.identity); err != nil {
		return err
	}
	if _, err := l.leases.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the Lease %s: %w", LeaseName, err)
	}
	return nil
}

// update writes the Lease if it is still the one that was read.
func (l *lease) update(ctx context.Context, o *unstructured.Unstructured, spec *coordinationv1.LeaseSpec, holder string) error {
	if err := l.fill(o, spec, holder); err != nil {
		return err
	}
	if _, err := l.leases.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update the Lease %s: %w", LeaseName, err)
	}
	return nil
}

// fill sets the spec of a Lease; before is the spec that it has.
func (l *lease) fill(o *unstructured.Unstructured, before *coordinationv1.LeaseSpec, holder string) error {
	now, transitions, seconds := metav1.NowMicro(), int32(0), max(1, int32(l.duration/time.Second))
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: before.AcquireTime, RenewTime: &now, LeaseTransitions: &transitions,
	}
	if before.LeaseTransitions != nil {
		transitions = *before.LeaseTransitions
	}
	if before.HolderIdentity == nil || *before.HolderIdentity != holder {
		spec.AcquireTime = &now
		if before.HolderIdentity != nil && holder != "" {
			transitions++
		}
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err != nil {
		return fmt.Errorf("encode the Lease %s: %w", LeaseName, err)
	}
	o.Object["spec"] = fields
	return nil
}

// release gives the Lease up, if this candidate holds it: the next one need not wait.
func (l *lease) release(ctx context.Context) error {
	o, err := l.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	holder, _, err := unstructured.NestedString(o.Object, "spec", "holderIdentity")
	if err != nil || holder != l.identity {
		return err
	}
	return l.update(ctx, o, &coordinationv1.LeaseSpec{HolderIdentity: &holder}, "")
}

// sleep reports whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
