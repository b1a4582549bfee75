package policystatus

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestConcernsObject: a webhook that refuses one policy does not keep others from their
// status; an API server that is away, or the missing right, concerns all.
func TestConcernsObject(t *testing.T) {
	resource := schema.GroupResource{Group: "policy.networking.k8s.io", Resource: "clusternetworkpolicies"}
	webhook := &apierrors.StatusError{ErrStatus: metav1.Status{
		Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: `admission webhook "x.example.com" denied the request: no`,
	}}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"a webhook":                   {webhook, true},
		"a ValidatingAdmissionPolicy": {apierrors.NewForbidden(resource, "p", errors.New("ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no")), true},
		"a webhook that fails":        {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"no right":                    {apierrors.NewForbidden(resource, "p", errors.New(`User "x" cannot patch resource`)), false},
		"away":                        {apierrors.NewServiceUnavailable("x"), false},
		"busy":                        {apierrors.NewTooManyRequests("x", 1), false},
		"no connection":               {errors.New("connection refused"), false},
	} {
		if got := concernsObject(c.err); got != c.want {
			t.Errorf("%s: %t, want %t (%v)", name, got, c.want, c.err)
		}
	}
}
