package change

import (
	"context"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/felixlike/felixlike/felixlike/tenancy"
)

const (
	// LeaseName is the name of the Lease with the last number, in the agents' namespace. The agents may write Leases
	// there, so that they need no right for it.
	LeaseName = "felixlike-netnamespace-numbers"
	// LastNumber is its annotation with the number that was given out last.
	LastNumber = "isolation.felixlike.io/last-number"
	// firstNumber is the least number that is given out: OpenShift reserves those below.
	firstNumber = 10
)

func (c Changer) leases() Resource {
	return Resource{GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: c.Namespace}
}

// number gives out a number that no NetNamespace has, and that nobody else is given.
func (c Changer) number(ctx context.Context) (int64, error) {
	var err error
	for range tries {
		var n int64
		n, err = c.nextNumber(ctx)
		if err == nil {
			return n, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
			break
		}
	}
	// The caller would take a conflict for one of its own object.
	return 0, fmt.Errorf("get a number from the Lease %s/%s: %v", c.Namespace, LeaseName, err) //nolint:errorlint
}

func (c Changer) nextNumber(ctx context.Context) (int64, error) {
	lease, err := c.Get(ctx, c.leases(), LeaseName)
	created := apierrors.IsNotFound(err)
	if created {
		lease, err = &unstructured.Unstructured{Object: map[string]any{}}, nil
		lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
		lease.SetName(LeaseName)
		lease.SetNamespace(c.Namespace)
	}
	if err != nil {
		return 0, err
	}
	last, err := lastOf(lease)
	if err != nil {
		return 0, err
	}
	// The list is younger than the Lease: a number above its last one has no owner but in the list.
	used, err := c.used(ctx)
	if err != nil {
		return 0, err
	}
	n, err := after(last, used)
	if err != nil {
		return 0, err
	}
	annotations := lease.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[LastNumber] = strconv.FormatInt(n, 10)
	lease.SetAnnotations(annotations)
	if created {
		return n, c.Create(ctx, c.leases(), lease)
	}
	return n, c.Update(ctx, c.leases(), lease)
}

// lastOf returns the last number of a Lease.
func lastOf(lease *unstructured.Unstructured) (int64, error) {
	text, has := lease.GetAnnotations()[LastNumber]
	if !has {
		return firstNumber - 1, nil
	}
	last, err := strconv.ParseInt(text, 10, 64)
	if err != nil || last < firstNumber-1 || last > tenancy.MaxNumber {
		return 0, fmt.Errorf("annotation %s: %q is no number: set the greatest number that a NetNamespace has had", LastNumber, text)
	}
	return last, nil
}

// after returns the next number after the last one that is not in use. After the greatest one it begins with the first.
func after(last int64, used map[int64]int) (int64, error) {
	n := last
	for range int64(tenancy.MaxNumber) - firstNumber + 1 {
		if n++; n > tenancy.MaxNumber {
			n = firstNumber
		}
		if used[n] == 0 {
			return n, nil
		}
	}
	return 0, errNoNumber
}
